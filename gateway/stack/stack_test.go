package stack_test

import (
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"petgate/gateway/stack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	ran := 0
	s := stack.New(func() { ran++ })
	s.Close() // it has not begun
	for i := range 3 {
		var done sync.WaitGroup
		done.Go(s.Run) // each time from another goroutine
		done.Wait()
		if ran != i+1 {
			t.Fatalf("after %d runs, the function has run %d times", i+1, ran)
		}
	}
	s.Close()
	s.Close()
	if s.Run(); ran != 4 {
		t.Errorf("after Close, the function has run %d times, want 4", ran)
	}
	s.Close()
}

func TestRunPassesAPanicOn(t *testing.T) {
	fails := true
	ran := 0
	s := stack.New(func() {
		if ran++; fails {
			panic("planted")
		}
	})
	defer s.Close()
	func() {
		defer func() {
			if got := recover(); got != "planted" {
				t.Errorf("Run panics with %v", got)
			}
		}()
		s.Run()
	}()
	s.Close()
	fails = false
	if s.Run(); ran != 2 {
		t.Errorf("after a panic, the function has run %d times, want 2", ran)
	}
}

// Goroutines that run a deep function in turn share the memory of its stack.
func TestStacksStaySmall(t *testing.T) {
	const goroutines = 100
	s := stack.New(func() { deep(1000) })
	defer s.Close()
	s.Run()
	before := stacks()
	var done sync.WaitGroup
	ran, end := make(chan bool), make(chan bool)
	for range goroutines {
		done.Go(func() {
			s.Run()
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
