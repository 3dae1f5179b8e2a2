package kills

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// answer is what came of one call of a history.
type answer int

const (
	// unknown: no answer; it may take effect at any later time, or never.
	unknown answer = iota
	// done: it took effect, or had done so before.
	done
	// refused: something else was there.
	refused
)

// call is one call on one register of a history.
type call struct {
	// register names it; each is judged by itself.
	register string
	client   int
	// from is what the register must hold, to what it holds then.
	from, to string
	answer   answer
	// began and ended are times since the start of the history.
	began, ended time.Duration
}

// calls is a history in the making. It may be used by many clients at once.
type calls struct {
	base time.Time
	mu   sync.Mutex
	all  []call
}

func newCalls() *calls { return &calls{base: time.Now()} }

// do makes one call and notes when it began and ended.
func (h *calls) do(c call, fn func() answer) answer {
	c.began = time.Since(h.base)
	c.answer = fn()
	c.ended = time.Since(h.base)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, c)
	return c.answer
}

// checkTime bounds the check of one history.
const checkTime = 60 * time.Second

// check reports whether the history could have come from registers that change at
// one moment each. A call without an answer stays concurrent with all that follow.
func (h *calls) check(step func(state string, c call) (bool, string)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var last time.Duration
	for _, c := range h.all {
		last = max(last, c.ended)
	}
	byRegister := make(map[string][]porcupine.Operation)
	for _, c := range h.all {
		ended := c.ended
		if c.answer == unknown {
			ended = last + 1
		}
		byRegister[c.register] = append(byRegister[c.register], porcupine.Operation{
			ClientId: c.client, Input: c, Output: c.answer, Call: int64(c.began), Return: int64(ended),
		})
	}
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			s, _ := state.(string)
			c, _ := input.(call)
			return step(s, c)
		},
	}
	for name, ops := range byRegister {
		switch porcupine.CheckOperationsTimeout(model, ops, checkTime) {
		case porcupine.Ok:
		case porcupine.Illegal:
			return fmt.Errorf("the history of %s has no order that explains it: %+v", name, ops)
		case porcupine.Unknown:
			return fmt.Errorf("the history of %s could not be checked within %s", name, checkTime)
		}
	}
	return nil
}

// once is a register that is written once: the intake of one operation id. A call
// with the content that is there is done, one with other content is refused.
func once(state string, c call) (bool, string) {
	switch c.answer {
	case done:
		return state == "" || state == c.to, c.to
	case refused:
		return state != "" && state != c.to, state
	case unknown:
		if state == "" {
			return true, c.to
		}
		return true, state
	}
	return false, state
}

// swap is a register that is changed by compare-and-swap: the end of one
// operation's log.
func swap(state string, c call) (bool, string) {
	switch c.answer {
	case done:
		return state == c.from, c.to
	case refused:
		return state != c.from, state
	case unknown:
		if state == c.from {
			return true, c.to
		}
		return true, state
	}
	return false, state
}

// count returns the calls, the registers that they were on, and the calls without
// an answer.
func (h *calls) count() (all, registers, unanswered int) {
	registers = len(h.registers())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.all {
		if c.answer == unknown {
			unanswered++
		}
	}
	return len(h.all), registers, unanswered
}

func (h *calls) registers() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make(map[string]bool)
	for _, c := range h.all {
		names[c.register] = true
	}
	return slices.Sorted(maps.Keys(names))
}
