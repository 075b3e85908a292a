package console

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Variables, because tests read all figures for every page.
var (
	// figuresWithin is how long a page waits for figures that are being read.
	figuresWithin = 60 * time.Millisecond
	// Figures are read again after figuresFor, or after dutyCycle times as long as the reading
	// took, if that is longer.
	figuresFor = 5 * time.Second
	dutyCycle  = time.Duration(20)
)

// figuresMax bounds a reading.
const figuresMax = 2 * time.Minute

// figures are values that may take longer to read than a page may wait, such as sums over many
// tenants. They are read in the background when a page asks for them, by one reading at a time. It
// is safe for concurrent use.
type figures[T any] struct {
	read func(context.Context) (T, error)
	turn *sync.Mutex // held while figures are read: only one reading at a time asks the database

	flight singleflight.Group

	mu    sync.Mutex
	value T
	err   error     // of the last reading
	known time.Time // when value was read; zero: never
	next  time.Time // when the value is too old
}

// look returns the figures and when they were read; zero: they are still being read for the first
// time, or cannot be read, as the error says. It waits until patience ends at most. The context of
// a reading is ctx.
func (f *figures[T]) look(ctx, patience context.Context) (value T, known time.Time, err error) {
	if f.isOld() {
		done := f.flight.DoChan("", func() (any, error) {
			if f.isOld() { // else another flight has landed since
				f.refresh(ctx)
			}
			return nil, nil
		})
		select {
		case <-done:
		case <-patience.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value, f.known, f.err
}

func (f *figures[T]) isOld() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !time.Now().Before(f.next)
}

func (f *figures[T]) refresh(ctx context.Context) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, figuresMax)
	defer cancel()
	f.turn.Lock()
	at := time.Now()
	value, err := f.read(ctx)
	f.turn.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if err == nil {
		f.value = value
		f.known = at
	}
	f.next = began.Add(max(figuresFor, dutyCycle*time.Since(at)))
}
