package events_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/opledger/opledger/events"
)

// FuzzSubjects: two texts from outside give a subject of one operation of one
// tenant, or nothing. A subject that is read gives the ids that it is made of (I15).
func FuzzSubjects(f *testing.F) {
	f.Add("acme", "op-1")
	for _, bad := range badIDs {
		if len(bad) < 100 {
			f.Add(bad, "op-1")
			f.Add("acme", bad)
		}
	}
	f.Fuzz(func(t *testing.T, tenant, op string) {
		var s events.Subjects
		for _, id := range []string{tenant, op} {
			if (events.CheckID("id", id) == nil) != events.IDPattern.MatchString(id) {
				t.Fatalf("%q is not judged by the pattern", id)
			}
		}
		ok := events.CheckID("tenant", tenant) == nil && events.CheckID("operation_id", op) == nil
		subject, err := s.Operation(tenant, op)
		if (err == nil) != ok || (err != nil && (subject != "" || !errors.Is(err, events.ErrInvalidID) || len(err.Error()) > 300)) {
			t.Fatalf("%q, %q: got %q, %v", tenant, op, subject, err)
		}
		if ok {
			if !strings.HasPrefix(subject, strings.TrimSuffix(s.AllEvents(tenant), ">")) || strings.Count(subject, ".") != 3 || strings.ContainsAny(subject, "*> \t\r\n\x00") || len(subject) > 200 {
				t.Errorf("%q, %q: got %q", tenant, op, subject)
			}
			if a, b, err := s.ParseOperation(subject); err != nil || a != tenant || b != op {
				t.Errorf("%q reads back as %q, %q, %v", subject, a, b, err)
			}
			if scope, err := s.Scope(tenant, op); err != nil || scope == subject || strings.Count(scope, ".") != 3 {
				t.Errorf("scope: got %q, %v", scope, err)
			}
		}
		// The second text as a subject that came from the log.
		for _, foreign := range []string{op, "opledger.events." + op, "opledger.events.acme." + op} {
			a, b, err := s.ParseOperation(foreign)
			if err != nil {
				continue
			}
			if again, err := s.Operation(a, b); err != nil || again != foreign {
				t.Errorf("%q reads as %q, %q, which is %q, %v", foreign, a, b, again, err)
			}
		}
	})
}
