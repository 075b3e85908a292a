package redis

import (
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
