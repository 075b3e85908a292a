// Package stack runs deep calls on stacks of their own.
//
// A goroutine's stack doubles when a call needs more, and the runtime hardly ever halves it again: only if less than a quarter is
// in use at a collection. So one deep call costs memory for as long as the goroutine lives. If each of many goroutines makes such
// a call now and then, they can share a few stacks.
package stack

import "iter"

// Stack runs one function, again and again, in a goroutine of its own. The caller waits meanwhile. The switch to that goroutine
// and back does not use the scheduler: no other thread wakes up. One goroutine at a time may use a Stack,
// and it must not have locked its thread (package iter).
type Stack struct {
	f    func()
	next func() (struct{}, bool) // runs f once; nil: there is no goroutine
	stop func()
}

// New returns a Stack for f. Its goroutine begins with the first Run.
func New(f func()) *Stack { return &Stack{f: f} }

// Run calls f and waits for its end. If f panics, so does Run.
func (s *Stack) Run() {
	next := s.next
	if next == nil {
		next, s.stop = iter.Pull(s.calls)
	}
	s.next = nil // it stays so if f panics, which ends the goroutine
	next()
	s.next = next
}

// calls is a sequence with one element for each call of f.
func (s *Stack) calls(yield func(struct{}) bool) {
	for {
		s.f()
		if !yield(struct{}{}) {
			return
		}
	}
}

// Close ends the goroutine. A later Run starts another one.
func (s *Stack) Close() {
	if s.next != nil {
		s.next = nil
		s.stop()
	}
}
