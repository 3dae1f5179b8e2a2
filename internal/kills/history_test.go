package kills

import (
	"testing"
	"time"
)

// The check is held to what it must find: each row is a history, told in
// milliseconds.
func TestHistoriesWithTwoWinnersAreFound(t *testing.T) {
	t.Parallel()
	c := func(client, began, ended int, from, to string, a answer) call {
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		return call{register: "r", client: client, from: from, to: to, answer: a, began: ms(began), ended: ms(ended)}
	}
	for _, row := range []struct {
		name string
		step func(string, call) (bool, string)
		all  []call
		ok   bool
	}{
		{"one wins and one is refused", once, []call{c(1, 0, 9, "", "a", done), c(2, 0, 9, "", "b", refused)}, true},
		{"two win", once, []call{c(1, 0, 9, "", "a", done), c(2, 0, 9, "", "b", done)}, false},
		{"refused by nobody", once, []call{c(1, 0, 9, "", "a", refused)}, false},
		{"refused by one that came later", once, []call{c(1, 0, 3, "", "a", refused), c(2, 5, 9, "", "b", done)}, false},
		{"refused by one without an answer", once, []call{c(1, 0, 1, "", "a", unknown), c(2, 5, 9, "", "b", refused)}, true},
		{"a late effect of one without an answer", once, []call{c(1, 0, 1, "", "a", unknown), c(2, 5, 9, "", "b", done), c(1, 10, 11, "", "a", refused)}, true},
		{"forgotten", once, []call{c(1, 0, 1, "", "a", done), c(2, 5, 9, "", "b", done)}, false},
		{"one after the other", swap, []call{c(1, 0, 1, "", "a", done), c(2, 2, 3, "a", "b", done)}, true},
		{"two on the same", swap, []call{c(1, 0, 9, "", "a", done), c(2, 0, 9, "", "b", done)}, false},
		{"one lost and gone on from", swap, []call{c(1, 0, 1, "", "a", unknown), c(2, 2, 3, "a", "b", done)}, true},
		{"refused while it was right", swap, []call{c(1, 0, 1, "", "a", done), c(2, 2, 3, "a", "b", refused)}, false},
	} {
		h := newCalls()
		h.all = row.all
		if err := h.check(row.step); (err == nil) != row.ok {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
