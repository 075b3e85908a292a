// Package lines writes log lines without waiting for their reader.
//
// A pipe blocks its writer when nothing reads it. No request and no background task may wait for a
// log. So lines are added to a buffer, and one goroutine writes the buffer. Lines that do not fit
// are dropped. A wake-up and a write cost more than the rest of a line. So the goroutine of an
// access log pauses after each write, and many lines share the cost.
package lines

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"
)

// Pause is the time between two writes of an access log. A line waits no longer for its write,
// unless the reader is slow.
const Pause = 100 * time.Millisecond

const (
	bufferBytesMax = 8 << 20
	bufferBytes    = 1 << 20 // a larger buffer is not used again

	// enoughBytes end a pause. A pipe of Linux, which holds 64 KiB, has room for them and for the
	// lines that come meanwhile.
	enoughBytes = 32 << 10

	// closeMax is how long Close waits for a reader that does not read.
	closeMax = time.Second
)

// ErrUnread means that nothing has read the last lines.
var ErrUnread = errors.New("nothing reads the log")

// Writer passes lines on to another writer, in their order. It is safe for concurrent use.
type Writer struct {
	to      io.Writer
	pause   time.Duration
	dropped func(lines int, err error)

	mu       sync.Mutex
	gathered []byte
	isClosed bool
	some     chan struct{} // there is a first line in the buffer
	enough   chan struct{} // the buffer has enough lines for a write
	done     chan struct{}
}

// New returns a Writer that passes lines on to the given writer. After each write it pauses. So the
// first line after a quiet time is written at once, and many lines share a write. With a pause of
// 0, each line is written as soon as possible. If lines are dropped, the Writer calls dropped,
// which may be nil. The error is that of the failed write, or nil if the buffer is full or the
// Writer is closed.
func New(to io.Writer, pause time.Duration, dropped func(lines int, err error)) *Writer {
	if dropped == nil {
		dropped = func(int, error) {}
	}
	w := &Writer{
		to: to, pause: pause, dropped: dropped,
		some: make(chan struct{}, 1), enough: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go w.run()
	return w
}

func (w *Writer) run() {
	defer close(w.done)
	pause := time.NewTimer(w.pause)
	defer pause.Stop()
	var writing []byte
	for range w.some {
		w.mu.Lock()
		writing, w.gathered = w.gathered, writing[:0]
		w.mu.Unlock()
		if n, err := w.to.Write(writing); err != nil {
			w.dropped(bytes.Count(writing[n:], []byte{'\n'}), err)
		}
		if cap(writing) > bufferBytes {
			writing = nil
		}
		if w.pause > 0 {
			pause.Reset(w.pause)
			select {
			case <-pause.C:
			case <-w.enough:
			}
		}
	}
}

// Write adds a line, which ends with a line feed, to the buffer. It never waits for the reader and
// never fails.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	before := len(w.gathered)
	full := w.isClosed || before > bufferBytesMax
	if !full {
		w.gathered = append(w.gathered, line...)
		if before == 0 {
			notify(w.some)
		}
		if before < enoughBytes && len(w.gathered) >= enoughBytes {
			notify(w.enough)
		}
	}
	w.mu.Unlock()
	if full {
		w.dropped(bytes.Count(line, []byte{'\n'}), nil)
	}
	return len(line), nil
}

// notify does nothing if an earlier notice has not been seen.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes the rest of the buffer. If nothing reads it for a second, Close returns ErrUnread:
// the program has to end.
func (w *Writer) Close() error {
	w.mu.Lock()
	if !w.isClosed {
		w.isClosed = true
		close(w.some)
		close(w.enough)
	}
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-time.After(closeMax):
		return ErrUnread
	}
}
