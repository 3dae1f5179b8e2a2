package sim

import "testing"

func BenchmarkSchedule(b *testing.B) {
	r := NewRunner()
	var seed uint64
	for b.Loop() {
		seed++
		if v := r.Schedule(seed); v != nil {
			b.Fatal(v)
		}
	}
}
