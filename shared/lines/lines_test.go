package lines_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/lines"
	"petgate/shared/testkit/must"
)

// recorder keeps each write.
type recorder struct {
	mu     sync.Mutex // for the race detector
	writes []string
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, string(p))
	return len(p), nil
}

// take waits until the Writer has nothing to do at this instant, and returns what it has written.
func (r *recorder) take() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := strings.Join(r.writes, "|")
	r.writes = nil
	return taken
}

// Lines that come in a pause share a write. None waits longer than a pause.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &recorder{}
		w := lines.New(to, lines.Pause, nil)
		f := func(name, want string, after time.Duration, written ...string) {
			t.Helper()
			for _, line := range written {
				_, _ = io.WriteString(w, line)
			}
			time.Sleep(after)
			if got := to.take(); got != want {
				t.Errorf("%s: %d bytes are written, %.40q, want %.40q", name, len(got), got, want)
			}
		}
		long := strings.Repeat("x", 20<<10) + "\n" // two of them end a pause
		f("the first line", "a\n", 0, "a\n")
		f("further lines in the pause", "", lines.Pause-1, "b\n", "c\n")
		f("the end of the pause", "b\nc\n", 1)
		f("the next pause", "", lines.Pause-1, "d\n")
		f("its end", "d\n", 1)
		f("after a pause without lines", "", lines.Pause)
		f("the first line after a quiet time", "e\n", 0, "e\n")
		f("half of what ends a pause", "", 0, long)
		f("what ends a pause", long+long, 0, long)
		f("the pause after it", "", lines.Pause-1, "f\n")
		f("the end of that", "f\n", 1)
		f("the last line", "", 0, "g\n")
		closedAt := time.Now()
		if err := w.Close(); err != nil || time.Since(closedAt) != 0 {
			t.Errorf("Close: %v, after %v", err, time.Since(closedAt))
		}
		f("Close does not wait for the end of the pause", "g\n", 0)
	})
}

// A log with errors does not pause: the program may end at any time.
func TestNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &recorder{}
		w := lines.New(to, 0, nil)
		for _, line := range []string{"a\n", "b\n", "c\n"} {
			_, _ = io.WriteString(w, line)
			must.Equal(t, to.take(), line, "written")
		}
		_ = w.Close()
	})
}

// stuck is a pipe that nothing reads until release.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

// No writer waits for a reader that does not read. What does not fit is counted, and Close gives
// up.
func TestStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := stuck{make(chan struct{})}
		var dropped atomic.Int64
		w := lines.New(to, lines.Pause, func(n int, err error) {
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

// gone is a pipe whose reader ends after the first line.
type gone struct{}

func (gone) Write([]byte) (int, error) { return len("a\n"), errors.New("broken pipe") }

func TestReaderHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed, late int
		w := lines.New(gone{}, lines.Pause, func(n int, err error) {
			if err != nil {
				failed += n
			} else {
				late += n
			}
		})
		_, _ = io.WriteString(w, "a\nb\nc\n")
		must.Do(t, errors.Join(w.Close(), w.Close()))
		_, _ = io.WriteString(w, "d\n")
		if failed != 2 || late != 1 {
			t.Errorf("%d lines could not be written and %d came late, want 2 and 1", failed, late)
		}
	})
}
