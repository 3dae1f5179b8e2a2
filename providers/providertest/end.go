package providertest

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/opledger/opledger/providers"
)

// End is the other end of an adapter under test: the provider, as it can be
// reached from here. Its methods may be called by several goroutines.
type End interface {
	// Next makes the next write go wrong.
	Next(f Fault)
	// Writes returns the content of every write that has arrived, in order,
	// without what only names the attempt.
	Writes() []string
	// Belong makes the end answer for another account of the provider.
	Belong(account string)
	// Stop takes the end away: nothing can be delivered to it any more.
	Stop()
}

// FaultWord says how a write goes wrong. The list is closed.
type FaultWord string

// The faults. In each of them the write arrives.
const (
	// LoseAnswer: the end acts, and its answer never arrives.
	LoseAnswer FaultWord = "lose_answer"
	// Garble: the end answers what can't be read.
	Garble FaultWord = "garble"
	// Fail: the end fails in an unforeseen way: a server error, a broken
	// worker, a panic.
	Fail FaultWord = "fail"
	// AnswerLate: the end acts, and answers when it is told to.
	AnswerLate FaultWord = "answer_late"
)

// Fault is how a write goes wrong.
type Fault struct {
	Word FaultWord
	// Arrived is told that a held write is here; Release lets it be answered.
	Arrived chan<- struct{}
	Release <-chan struct{}
}

// Bench is one adapter with its other end, and a call for it. The call is always
// the same operation.
type Bench struct {
	Adapter providers.Adapter
	Call    providers.Call
	End     End
}

// httpEnd is a peer as an end.
type httpEnd struct{ *Peer }

// Next implements End.
func (e httpEnd) Next(f Fault) {
	switch f.Word {
	case LoseAnswer:
		e.Peer.Next(Drop)
	case Garble:
		e.Peer.Next(Answer(http.StatusOK, "<html>\x00"))
	case Fail:
		e.Peer.Next(Answer(http.StatusInternalServerError, `{}`))
	case AnswerLate:
		e.Peer.Next(func(w http.ResponseWriter, r *http.Request) {
			f.Arrived <- struct{}{}
			select {
			case <-f.Release:
				e.usual.ServeHTTP(w, r)
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			}
		})
	}
}

// Writes implements End.
func (e httpEnd) Writes() []string {
	writes := e.Peer.Writes()
	out := make([]string, len(writes))
	for i, w := range writes {
		out[i] = fmt.Sprintf("%s %s?%s\n%v\n%s", w.Method, w.Path, w.Query, w.Header, w.Body)
	}
	return out
}

// Stop implements End.
func (e httpEnd) Stop() { e.Close() }

// Belong implements End: wherever the usual answers to reads name the account,
// they name the other one.
func (e httpEnd) Belong(account string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.account = account
}

// renamed answers a read for another account.
func renamed(usual http.Handler, w http.ResponseWriter, r *http.Request, from, to string) {
	rec := httptest.NewRecorder()
	usual.ServeHTTP(rec, r)
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	_, _ = w.Write([]byte(strings.ReplaceAll(rec.Body.String(), from, to))) // the client may be gone
}
