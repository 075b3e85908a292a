package redis

import (
	"runtime"
	"sync"
	"testing"
)

func TestStackRuns(t *testing.T) {
	ran := 0
	s := newStack(func() { ran++ })
	s.close() // it has not begun
	for i := range 3 {
		var done sync.WaitGroup
		done.Go(s.run) // each time from another goroutine
		done.Wait()
		if ran != i+1 {
			t.Fatalf("after %d runs, the function has run %d times", i+1, ran)
		}
	}
	s.close()
	s.close()
	if s.run(); ran != 4 {
		t.Errorf("after close, the function has run %d times, want 4", ran)
	}
	s.close()
}

func TestAStackPassesAPanicOn(t *testing.T) {
	fails := true
	ran := 0
	s := newStack(func() {
		if ran++; fails {
			panic("planted")
		}
	})
	defer s.close()
	func() {
		defer func() {
			if got := recover(); got != "planted" {
				t.Errorf("run panics with %v", got)
			}
		}()
		s.run()
	}()
	s.close()
	fails = false
	if s.run(); ran != 2 {
		t.Errorf("after a panic, the function has run %d times, want 2", ran)
	}
}

// Goroutines that run a deep function in turn share the memory of its stack.
func TestStacksStaySmall(t *testing.T) {
	const goroutines = 100
	s := newStack(func() { deep(1000) })
	defer s.close()
	s.run()
	before := stacks()
	var done sync.WaitGroup
	ran, end := make(chan bool), make(chan bool)
	for range goroutines {
		done.Go(func() {
			s.run()
			ran <- true
			<-end
		})
		<-ran
	}
	each := (stacks() - before) / goroutines
	close(end)
	done.Wait()
	if each >= deepBytes/2 {
		t.Errorf("%d bytes of stack for each goroutine; the function needs at least %d", each, deepBytes)
	}
}

// deepBytes is less than deep(1000) needs.
const deepBytes = 64 << 10

//go:noinline
func deep(calls int) byte {
	var frame [64]byte
	frame[calls%len(frame)] = 1
	if calls > 0 {
		frame[0] += deep(calls - 1)
	}
	return frame[calls%len(frame)]
}

func stacks() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}
