package integrity_test

import (
	"path/filepath"
	"testing"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/integrity"
)

// What one message costs the audit.
func BenchmarkAdd(b *testing.B) {
	a := integrity.NewAudit(config())
	r := events.Record{Subject: "opledger.events.acme.op-1", Body: make([]byte, 1000)}
	for b.Loop() {
		r.Seq++
		a.Add(r)
	}
}

// What one write of the mark costs; it is written four times a second at most.
func BenchmarkSave(b *testing.B) {
	path := filepath.Join(b.TempDir(), "highwater.json")
	m := integrity.Mark{Ledger: "l-1", Created: noon, Seq: 1, Rolling: "sha256:aa"}
	for b.Loop() {
		if err := integrity.Save(path, m, false); err != nil {
			b.Fatal(err)
		}
	}
}
