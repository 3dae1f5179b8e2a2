package simulator

import "testing"

func TestTheRequestLogDropsItsOldestRows(t *testing.T) {
	t.Parallel()
	st := newState(Settings{}, nil)
	for range maxRequests + 5 {
		st.log(&Request{})
	}
	if len(st.requests) != maxRequests || st.dropped != 5 || st.requests[0].Number != 6 || st.received != maxRequests+5 {
		t.Fatalf("%d rows, %d dropped, first %d", len(st.requests), st.dropped, st.requests[0].Number)
	}
}
