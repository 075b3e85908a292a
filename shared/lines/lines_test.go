package lines_test

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"petgate/shared/lines"
)

func TestLinesArriveInOrder(t *testing.T) {
	var got strings.Builder
	w := lines.New(&got, nil)
	for _, line := range []string{"a\n", "b\n", "c\n"} {
		_, _ = io.WriteString(w, line)
	}
	if err := w.Close(); err != nil || got.String() != "a\nb\nc\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// stuck is a pipe that nothing reads until release.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

// No writer waits for a reader that does not read. What does not fit is counted, and Close gives up.
func TestStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := stuck{make(chan struct{})}
		var dropped atomic.Int64
		w := lines.New(to, func(n int, err error) {
			if err == nil {
				dropped.Add(int64(n))
			}
		})
		line := []byte(strings.Repeat("x", 1<<20) + "\n")
		for range 20 {
			_, _ = w.Write(line)
		}
		if n := dropped.Load(); n < 20-2*9 || n > 12 { // the buffer and what is being written: 8 to 18 MiB
			t.Errorf("%d of 20 lines of 1 MiB are dropped", n)
		}
		if err := w.Close(); !errors.Is(err, lines.ErrUnread) {
			t.Errorf("Close: %v", err)
		}
		close(to.release)
	})
}

// gone is a pipe whose reader has ended.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestReaderHasEnded(t *testing.T) {
	var failed, late int
	w := lines.New(gone{}, func(n int, err error) {
		if err != nil {
			failed += n
		} else {
			late += n
		}
	})
	_, _ = io.WriteString(w, "a\nb\n")
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	_, _ = io.WriteString(w, "c\n")
	if failed != 2 || late != 1 {
		t.Errorf("%d lines could not be written and %d came late, want 2 and 1", failed, late)
	}
}
