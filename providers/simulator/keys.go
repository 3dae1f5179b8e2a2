package simulator

import (
	"net/http"
	"time"
)

// Limits of the keys.
const (
	maxKeys      = 1_000_000
	maxKeyLength = 255
)

// keyName is where a key is unique.
type keyName struct{ account, key string }

// keyEntry is what the provider remembers of a key.
type keyEntry struct {
	name        keyName
	fingerprint string
	firstAt     time.Time
	finished    bool
	stored      answer
	done        chan struct{} // closed when the first request is through
}

// claimed is the answer of a key lookup: exactly one of the three is meant.
type claimed struct {
	run    bool            // execute the request
	wait   <-chan struct{} // ask again when it is closed
	answer answer          // answer this
}

// forgotten reports whether the provider no longer knows the key.
func (st *state) forgotten(e *keyEntry, now time.Time) bool {
	kept := time.Duration(st.settings.KeyRetention - st.settings.KeyForgetEarly)
	return e.finished && !now.Before(e.firstAt.Add(kept))
}

// claim looks the request's key up, or takes it for this request.
func (st *state) claim(x *exchange, now time.Time) claimed {
	if !x.route.keyed || !st.settings.Keys || x.key == "" {
		return claimed{run: true}
	}
	if len(x.key) > maxKeyLength {
		return claimed{answer: problem(http.StatusBadRequest, "idempotency_key_too_long", "the key is too long")}
	}
	st.forgetKeys(now)
	name := keyName{x.account, x.key}
	e := st.keys[name]
	if e == nil || st.forgotten(e, now) {
		return st.takeKey(x, name, now)
	}
	if e.fingerprint != x.fingerprint {
		switch st.settings.Mismatch {
		case Mismatch400:
			return claimed{answer: mismatch(http.StatusBadRequest)}
		case Mismatch422:
			return claimed{answer: mismatch(http.StatusUnprocessableEntity)}
		case MismatchReplay:
		}
	}
	if !e.finished {
		switch st.settings.Concurrent {
		case Concurrent409:
			return claimed{answer: problem(http.StatusConflict, "idempotency_key_in_use",
				"a request with this key is in progress")}
		case ConcurrentWait:
			return claimed{wait: e.done}
		case ConcurrentSecond:
			return claimed{run: true}
		}
	}
	x.row.Replayed = true
	return claimed{answer: e.stored.with("Idempotent-Replayed", "true")}
}

func mismatch(status int) answer {
	return problem(status, "idempotency_mismatch", "the key was used with another body")
}

func (st *state) takeKey(x *exchange, name keyName, now time.Time) claimed {
	if len(st.keyOrder) >= maxKeys {
		return claimed{answer: problem(http.StatusInsufficientStorage, "full", "the table of keys is full")}
	}
	x.entry = &keyEntry{name: name, fingerprint: x.fingerprint, firstAt: now, done: make(chan struct{})}
	st.keys[name] = x.entry
	st.keyOrder = append(st.keyOrder, x.entry)
	return claimed{run: true}
}

// forgetKeys drops the oldest keys whose time is over.
func (st *state) forgetKeys(now time.Time) {
	for len(st.keyOrder) > 0 && st.forgotten(st.keyOrder[0], now) {
		st.dropKey(st.keyOrder[0])
		st.keyOrder[0] = nil
		st.keyOrder = st.keyOrder[1:]
	}
}

func (st *state) dropKey(e *keyEntry) {
	if st.keys[e.name] == e {
		delete(st.keys, e.name)
	}
}

// finish ends a request: its key stores an answer or is given back, those who
// wait for the key go on, and a weak guard of ids begins to see its objects.
// The client sees `sent`; an answer with status zero means nothing was decided.
func (st *state) finish(x *exchange, sent answer) {
	for _, o := range x.made {
		o.settled = true
	}
	e := x.entry
	if e == nil || e.finished {
		return
	}
	e.finished = true
	policy := st.settings.StoreErrors
	switch {
	case sent.status >= 500 && policy == StoreAll,
		sent.status >= 400 && sent.status < 500 && policy != StoreNone:
		e.stored = sent
	case x.result.status >= 200 && x.result.status < 300:
		e.stored = x.result
	default:
		st.dropKey(e)
	}
	close(e.done)
}
