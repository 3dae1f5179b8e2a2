package operation_test

import (
	"flag"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opledger/opledger/operation"
)

var (
	loopRuns  = flag.Int("runs", 1500, "random runs per setting in the closed loop")
	loopDepth = flag.Int("choices", 4, "first choices that the closed loop goes through completely")
	loopSeed  = flag.Uint64("seed", 1, "first seed of the closed loop")
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x0b1ed6e2)) }

// I1, I3, I4, I5, I7, I8, I12, I19: the real decisions against a provider that
// keeps its contract never double an effect, never confirm what is not there,
// never reject what is, and always come to an end. Method: every combination of
// the first choices (fault of the request, of the answer, of the look, crash,
// pause, person), then random runs from seeds.
func TestClosedLoopKeepsTheProvidersWorldRight(t *testing.T) {
	t.Parallel()
	var runs, events, finals, reviews, undetermined atomic.Int64
	reasons := make([]map[operation.Reason]int, len(settings()))
	began := time.Now()
	t.Run("group", func(t *testing.T) {
		for i, st := range settings() {
			reasons[i] = map[operation.Reason]int{}
			t.Run(st.name, func(t *testing.T) {
				t.Parallel()
				b := realBrain()
				b.next = func(s operation.State, c operation.Contract, p operation.Params) operation.Step {
					step := operation.Next(s, c, p)
					reasons[i][step.Reason]++
					return step
				}
				one := func(ch *chooser, seed uint64) bool {
					w := newWorld(b, st, ch)
					runs.Add(1)
					if v := w.run(); v != "" {
						t.Errorf("seed %d, choices %v: %s\n%s", seed, ch.made, v, strings.Join(w.transcript, "\n"))
						return false
					}
					events.Add(int64(w.s.Version))
					switch {
					case w.s.Status.Final():
						finals.Add(1)
					case w.s.Undetermined:
						undetermined.Add(1)
					default:
						reviews.Add(1)
					}
					return true
				}
				for script, more := []int(nil), true; more; {
					ch := &chooser{script: script}
					if !one(ch, 0) {
						return
					}
					script, more = ch.advance(*loopDepth)
				}
				for seed := *loopSeed; seed < *loopSeed+uint64(*loopRuns); seed++ {
					if !one(&chooser{rng: seeded(seed)}, seed) {
						return
					}
				}
			})
		}
	})
	fired := map[operation.Reason]int{}
	for _, m := range reasons {
		for r, n := range m {
			fired[r] += n
		}
	}
	t.Logf("%d runs, %d events, ends: %d final, %d open reviews, %d undetermined, %s", runs.Load(), events.Load(),
		finals.Load(), reviews.Load(), undetermined.Load(), time.Since(began).Round(time.Millisecond))
	t.Logf("reasons: %v", fired)
}
