package quotas

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"petgate/gateway/quotas/store"
	"petgate/shared/core/instant"
)

// saveEvery is how often in-process quotas, or the record of an outage, are saved. If a save takes long, the next one
// comes later: see keepSaving. A killed process loses what it has not saved yet.
const saveEvery = time.Second

// Saved is a tenant's quota record as it survives a restart.
type Saved = store.Saved

// Saver keeps the quota records of a process that decides without Redis.
type Saver interface {
	// SaveQuotas replaces the saved records of these tenants; now is the time of the save.
	SaveQuotas(ctx context.Context, now instant.Millis, records []Saved) error
	// LoadQuotas returns all saved records.
	LoadQuotas(ctx context.Context) ([]Saved, error)
}

// loadEvery is how often a failed load of the saved quotas is repeated.
const loadEvery = 500 * time.Millisecond

func (l *Local) load(ctx context.Context) error {
	saved, err := l.config.Saver.LoadQuotas(ctx)
	if err != nil {
		return fmt.Errorf("quotas: load the saved quotas: %w", err)
	}
	if err := l.records.Load(saved); err != nil {
		l.config.Log.Error("some saved quotas cannot be read: their tenants start with unused limits", "error", err)
	}
	l.loaded.Store(true)
	return nil
}

// keepLoading tries until the saved records are loaded. It returns false if Close comes first.
func (l *Local) keepLoading(closing context.Context) bool {
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for {
		select {
		case <-closing.Done():
			return false
		case <-tick.C:
		}
		if l.load(closing) == nil {
			l.config.Log.Info("the saved quotas are loaded")
			return true
		}
	}
}

// keepSaving saves what has changed until closing ends. What could not be saved is saved with the next second's changes. A
// save that takes long, because an outage has very many tenants, is followed by a longer pause: it uses at most a twentieth
// of a processor.
func keepSaving(closing context.Context, log *slog.Logger, save func() error) {
	timer := time.NewTimer(saveEvery)
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-closing.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		err := save()
		timer.Reset(max(saveEvery, 19*time.Since(began)))
		if err != nil && !failing {
			log.Error("quotas cannot be saved: a restart would forget them", "error", err)
		} else if err == nil && failing {
			log.Info("quotas are saved again")
		}
		failing = err != nil
	}
}

// worker runs goroutines that end with its owner. One goroutine uses it.
type worker struct {
	closing context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

func (w *worker) run(f func(closing context.Context)) {
	if w.end == nil {
		w.closing, w.end = context.WithCancel(context.Background())
	}
	w.running.Go(func() { f(w.closing) })
}

// stop ends the goroutines, if there are any, and waits for them.
func (w *worker) stop() {
	if w.end != nil {
		w.end()
	}
	w.running.Wait()
}

// save saves the records that changed since the last save.
func (l *Local) save(ctx context.Context) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	changed, mark := l.records.Dump(l.saved)
	if len(changed) > 0 {
		if err := l.config.Saver.SaveQuotas(ctx, l.records.Now(), changed); err != nil {
			l.metrics.unsaved.Inc()
			l.unsaved.Store(&err)
			return err
		}
	}
	l.saved = mark
	l.unsaved.Store(nil)
	return nil
}

func (l *Local) saveNow(ctx context.Context) error {
	if l.config.Saver == nil {
		return nil
	}
	if err := l.save(ctx); err != nil {
		return fmt.Errorf("quotas: save the quotas: %w", err)
	}
	return nil
}
