package simulator

import (
	"net/http"
	"time"
)

// Limits of the keys.
const (
	maxKeys       = 1_000_000
	defaultMaxKey = 255
)

// keyName is where a key is unique.
type keyName struct{ scope, key string }

// keyEntry is what the provider remembers of a key.
type keyEntry struct {
	name        keyName
	fingerprint string
	firstAt     time.Time
	request     string // the request id of the first request
	unfinished  bool   // the first request failed after its commit; see StoreReexecute
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
func (s Settings) forgotten(e *keyEntry, now time.Time) bool {
	kept := time.Duration(s.KeyRetention - s.KeyForgetEarly)
	return e.finished && !now.Before(e.firstAt.Add(kept))
}

// claim looks the request's key up, or takes it for this request.
func (st *state) claim(x *exchange, now time.Time) claimed {
	if !x.route.keyed || !x.settings.Keys || x.key == "" {
		return claimed{run: true}
	}
	if limit := orNumber(x.dialect.maxKey, defaultMaxKey); len(x.key) > limit {
		return claimed{answer: x.fail(longKey, "the key is too long")}
	}
	st.forgetKeys(now)
	name := x.keyName()
	e := st.keys[name]
	if e == nil || x.settings.forgotten(e, now) {
		return st.takeKey(x, name, now)
	}
	if e.fingerprint != x.fingerprint {
		switch x.settings.Mismatch {
		case Mismatch400:
			return claimed{answer: x.mismatch(http.StatusBadRequest)}
		case Mismatch409:
			return claimed{answer: x.mismatch(http.StatusConflict)}
		case Mismatch422:
			return claimed{answer: x.mismatch(http.StatusUnprocessableEntity)}
		case MismatchReplay:
		}
	}
	if !e.finished {
		switch x.settings.Concurrent {
		case Concurrent409:
			return claimed{answer: x.fail(keyInUse, "a request with this key is in progress")}
		case ConcurrentWait:
			return claimed{wait: e.done}
		case ConcurrentSecond:
			return claimed{run: true}
		}
	}
	if e.unfinished {
		e.unfinished = false
		return claimed{answer: e.stored.current()}
	}
	x.row.Replayed = true
	return claimed{answer: x.replay(e)}
}

// replay is the stored answer in the form that the settings say.
func (x *exchange) replay(e *keyEntry) answer {
	switch x.settings.Replay {
	case ReplayBare:
		return e.stored
	case ReplayCurrent:
		return e.stored.current()
	case ReplayMarked:
	}
	if x.dialect.replayed == nil {
		return e.stored.with("Idempotent-Replayed", "true")
	}
	return e.stored.withAll(x.dialect.replayed(e.request))
}

// current is the answer for the object as it is now.
func (a answer) current() answer {
	if a.again == nil {
		return a
	}
	b := a.again()
	b.again = a.again
	return b
}

func (x *exchange) keyName() keyName {
	switch x.settings.KeyScope {
	case ScopePath:
		return keyName{x.account + " " + x.method + " " + x.path, x.key}
	case ScopeShared:
		return keyName{"", x.key}
	case ScopeAccount:
	}
	return keyName{x.account, x.key}
}

func (x *exchange) mismatch(status int) answer {
	return x.failed(failure{shape: shape{trouble: keyMismatch, status: status}, message: "the key was used with another body"})
}

func (st *state) takeKey(x *exchange, name keyName, now time.Time) claimed {
	if len(st.keyOrder) >= maxKeys {
		return claimed{answer: x.fail(tableFull, "the table of keys is full")}
	}
	x.entry = &keyEntry{name: name, fingerprint: x.fingerprint, firstAt: now, request: x.row.RequestID, done: make(chan struct{})}
	st.keys[name] = x.entry
	st.keyOrder = append(st.keyOrder, x.entry)
	return claimed{run: true}
}

// forgetKeys drops the oldest keys whose time is over.
func (st *state) forgetKeys(now time.Time) {
	for len(st.keyOrder) > 0 && st.settings.forgotten(st.keyOrder[0], now) {
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
	policy, failed := x.settings.StoreErrors, sent.meaning() >= 400
	switch {
	case sent.meaning() >= 500 && policy == StoreAll,
		failed && sent.meaning() < 500 && !sent.unstored && (policy == StoreAll || policy == Store4xx):
		e.stored = sent
	case x.result.good() && (!failed || policy != StoreForget):
		e.stored = x.result
		e.unfinished = failed && policy == StoreReexecute
	default:
		st.dropKey(e)
	}
	close(e.done)
}
