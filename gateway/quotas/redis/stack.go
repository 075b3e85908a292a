package redis

import "iter"

// stack runs one function, again and again, in a goroutine of its own. The caller waits meanwhile.
// A goroutine's stack doubles when a call needs more, and the runtime hardly ever halves it again:
// so one deep call costs memory for as long as the goroutine lives. Requests whose goroutines lead
// a batch now and then share a few stacks.
//
// The switch to that goroutine and back does not use the scheduler: no other thread wakes up. One
// goroutine at a time may use a stack, and it must not have locked its thread (package iter).
type stack struct {
	f    func()
	next func() (struct{}, bool) // runs f once; nil: there is no goroutine
	stop func()
}

// newStack returns a stack for f. Its goroutine begins with the first run.
func newStack(f func()) *stack { return &stack{f: f} }

// run calls f and waits for its end.
func (s *stack) run() {
	if s.next == nil {
		s.next, s.stop = iter.Pull(s.calls)
	}
	s.next()
}

// calls is a sequence with one element for each call of f.
func (s *stack) calls(yield func(struct{}) bool) {
	for {
		s.f()
		if !yield(struct{}{}) {
			return
		}
	}
}

// close ends the goroutine. A later run starts another one.
func (s *stack) close() {
	if s.next != nil {
		s.next = nil
		s.stop()
	}
}
