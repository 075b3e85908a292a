// Package lines writes log lines without waiting for their reader.
//
// A pipe blocks its writer when nothing reads it. No request and no background task may wait for a log. So lines are added to
// a buffer, and one goroutine writes the buffer, which also saves system calls. Lines that do not fit are dropped.
package lines

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	bufferBytesMax = 8 << 20
	bufferBytes    = 1 << 20 // a larger buffer is not used again

	// closeMax is how long Close waits for a reader that does not read.
	closeMax = time.Second
)

// ErrUnread means that nothing has read the last lines.
var ErrUnread = errors.New("nothing reads the log")

// Writer passes lines on to another writer. It is safe for concurrent use.
type Writer struct {
	to      io.Writer
	dropped func(lines int, err error)

	mu       sync.Mutex
	gathered []byte
	wake     chan struct{} // nil after Close
	done     chan struct{}
}

// New returns a Writer that passes lines on to the given writer. If lines are dropped, it calls dropped, which may be nil. The
// error is that of the failed write, or nil if the buffer is full or the Writer is closed.
func New(to io.Writer, dropped func(lines int, err error)) *Writer {
	if dropped == nil {
		dropped = func(int, error) {}
	}
	w := &Writer{to: to, dropped: dropped, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run(w.wake)
	return w
}

func (w *Writer) run(wake <-chan struct{}) {
	defer close(w.done)
	var writing []byte
	for range wake {
		w.mu.Lock()
		writing, w.gathered = w.gathered, writing[:0]
		w.mu.Unlock()
		if n, err := w.to.Write(writing); err != nil {
			w.dropped(bytes.Count(writing[n:], []byte{'\n'}), err)
		}
		if cap(writing) > bufferBytes {
			writing = nil
		}
	}
}

// Write adds a line, which ends with a line feed, to the buffer. It never waits for the reader and never fails.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	full := w.wake == nil || len(w.gathered) > bufferBytesMax
	if !full {
		w.gathered = append(w.gathered, line...)
		select {
		case w.wake <- struct{}{}:
		default: // already awake
		}
	}
	w.mu.Unlock()
	if full {
		w.dropped(bytes.Count(line, []byte{'\n'}), nil)
	}
	return len(line), nil
}

// Close writes the rest of the buffer. If nothing reads it for a second, Close returns ErrUnread: the program has to end.
func (w *Writer) Close() error {
	w.mu.Lock()
	if w.wake != nil {
		close(w.wake)
		w.wake = nil
	}
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-time.After(closeMax):
		return ErrUnread
	}
}
