package limitstore

import (
	"context"
	"fmt"
	"time"
)

// saveEvery is how often in-process quotas are saved: what a killed process forgets at most.
const saveEvery = time.Second

// Saver keeps the quota records of a process that decides without Redis.
type Saver interface {
	// SaveQuotas replaces the saved records of the tenants given; now is when, in Unix milliseconds.
	SaveQuotas(ctx context.Context, now int64, records []Saved) error
	// LoadQuotas returns all that is saved.
	LoadQuotas(ctx context.Context) ([]Saved, error)
}

func openMemory(ctx context.Context, cfg Config) (*Limiter, error) {
	store := newMemory(cfg.Rule, cfg.Clock)
	if cfg.Saver != nil {
		saved, err := cfg.Saver.LoadQuotas(ctx)
		if err != nil {
			return nil, fmt.Errorf("limitstore: load the saved quotas: %w", err)
		}
		if err := store.load(saved); err != nil {
			cfg.Log.Error("some saved quotas cannot be read: their tenants start anew", "error", err)
		}
	}
	l := newLimiter(cfg, modeMemory)
	l.memory = store
	if cfg.Saver != nil {
		l.running.Go(l.keepSaving)
	}
	return l, nil
}

// keepSaving saves what has changed until Close. What fails is tried again with the next second's changes.
func (l *Limiter) keepSaving() {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-l.closing.Done():
			return
		case <-tick.C:
		}
		err := l.save(l.closing)
		if err != nil && !failing {
			l.config.Log.Error("quotas cannot be saved: a restart would forget them", "error", err)
		} else if err == nil && failing {
			l.config.Log.Info("quotas are saved again")
		}
		failing = err != nil
	}
}

// save is called by one goroutine at a time.
func (l *Limiter) save(ctx context.Context) error {
	changed, mark := l.memory.dump(l.saved)
	if len(changed) > 0 {
		if err := l.config.Saver.SaveQuotas(ctx, l.nowMs(), changed); err != nil {
			l.metrics.unsaved.Inc()
			return err
		}
	}
	l.saved = mark
	return nil
}

func (l *Limiter) saveLast(ctx context.Context) error {
	if l.config.Saver == nil {
		return nil
	}
	if err := l.save(ctx); err != nil {
		return fmt.Errorf("limitstore: save the quotas: %w", err)
	}
	return nil
}
