package projections

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opledger/opledger/events"
	"github.com/opledger/opledger/internal/natstest"
)

// readIndex makes an index, starts it and waits until it is complete.
func (l *ledger) readIndex() (x *Index, stop func()) {
	l.t.Helper()
	x, err := NewIndex(l.cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	x.worth = 1
	stop = run(l.t, x.Run)
	natstest.Eventually(l.t, patience, "the first picture", x.Ready)
	return x, stop
}

// known is all that an index knows: what is open and which wishes there were.
func known(x *Index) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	open := map[string]Open{}
	for key, it := range x.open {
		open[key] = it.Open
	}
	data, err := json.MarshalIndent(map[string]any{"open": open, "wishes": x.wishes.first}, "", " ")
	if err != nil {
		panic(err)
	}
	return string(data)
}

// grow adds random events and wishes with a request id, and projects them.
func (l *ledger) grow(p *Projector, n int) {
	l.t.Helper()
	l.history(seeded(l.t), 15, n)
	for i := range n / 10 {
		wish := intent(fmt.Sprintf("wish-%d-%d", n, i))
		wish.RequestID = fmt.Sprintf("req-%d", i%3)
		l.append(fmt.Sprintf("wish-%d-%d", n, i), wish)
	}
	l.caughtUp(p)
}

// An index that begins with a snapshot knows what one knows that has read every
// entry, whatever was written since; and it reads only that.
func TestAnIndexFromASnapshotIsTheIndexOfAllEntries(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	for round := range 4 {
		l.grow(p, 40+round)
		x, stop := l.readIndex()
		whole, err := NewIndex(l.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.b.each(t.Context(), ">", func(key string, v value) error {
			if tenant, operationID, ok := splitKey(key); ok {
				s, err := decodeState(v.data)
				if err != nil {
					return err
				}
				whole.wishes.note(tenant, wishOf(s.Intent), operationID)
				whole.apply(key, s)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if round > 0 && x.saved == 0 {
			t.Error("there is a snapshot, and every entry was read")
		}
		got, want := openIn(known(x)), openIn(known(whole))
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("round %d: %s", round, d)
		}
		if len(x.wishes.first) != len(whole.wishes.first) {
			t.Errorf("round %d: %d wishes, want %d", round, len(x.wishes.first), len(whole.wishes.first))
		}
		stop()
		if err := x.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l.checkVerified(p)
}

// openIn is the part of known that does not depend on the order of entries.
func openIn(text string) string {
	open, _, _ := strings.Cut(text, `"wishes"`)
	return open
}

// A snapshot that is not whole, of another version or of another bucket counts as
// none: every entry is read.
func TestASnapshotThatDoesNotFitCountsAsNone(t *testing.T) {
	t.Parallel()
	l := newLedger(t, natstest.Server(t))
	p := l.projector(nil)
	run(t, p.Run)
	l.grow(p, 40)
	x, stop := l.readIndex()
	want := known(x)
	stop()
	if err := x.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	v, err := l.b.last(t.Context(), snapshotKey)
	if err != nil {
		t.Fatal(err)
	}
	part, err := l.b.last(t.Context(), partKey(0))
	if err != nil || v.rev == 0 || part.rev == 0 {
		t.Fatalf("nothing was saved: %v", err)
	}
	change := func(from, to string) string {
		if !strings.Contains(string(v.data), from) {
			t.Fatalf("%q is not in %s", from, v.data)
		}
		return strings.Replace(string(v.data), from, to, 1)
	}
	var head snapshotHead
	if err := json.Unmarshal(v.data, &head); err != nil {
		t.Fatal(err)
	}
	later, _ := json.Marshal(head.Created.Add(time.Second))
	created, _ := json.Marshal(head.Created)
	for name, bad := range map[string]struct{ key, data string }{
		"head that is no JSON":   {snapshotKey, "{"},
		"other format":           {snapshotKey, change(`"format":1`, `"format":2`)},
		"other fold":             {snapshotKey, change(`"fold_version":1`, `"fold_version":2`)},
		"other bucket":           {snapshotKey, change(string(created), string(later))},
		"revision from nowhere":  {snapshotKey, change(`"rev":`, `"rev":99`)},
		"part that is missing":   {snapshotKey, change(`"parts":1`, `"parts":2`)},
		"part of another":        {partKey(0), strings.Replace(string(part.data), head.ID, events.NewID(), 1)},
		"part that is cut short": {partKey(0), string(part.data[:len(part.data)/2])},
	} {
		l.overwrite(partKey(0), string(part.data))
		l.overwrite(snapshotKey, string(v.data))
		l.overwrite(bad.key, bad.data)
		again, stop := l.readIndex()
		if again.saved != 0 {
			t.Errorf("%s: it was taken", name)
		}
		if d := cmp.Diff(openIn(want), openIn(known(again))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		stop()
	}
}

// What an open operation is, is part of the snapshot's form: whoever changes it
// changes snapshotFormat, and then this list.
func TestTheFormOfASnapshotHasANumber(t *testing.T) {
	t.Parallel()
	var fields []string
	for f := range reflect.TypeFor[Open]().Fields() {
		fields = append(fields, f.Name+" "+f.Type.String())
	}
	want := "Tenant string,OperationID string,Version uint64,LastSeq uint64,Status operation.Status,StatusSince time.Time," +
		"RecordedAt time.Time,Provider string,Account string,Action string,ContractDigest string,RequestID string," +
		"ConflictScope string,Labels map[string]string,NextAction events.NextAction,NextAt time.Time,ReviewReason string," +
		"ReviewSince time.Time,Hold string,Halted string,Undetermined bool,FirstSend time.Time"
	if got := strings.Join(fields, ","); got != want || snapshotFormat != 1 {
		t.Errorf("format %d is now\n%s\nwant\n%s", snapshotFormat, got, want)
	}
}
