package quotas

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"petgate/gateway/quotas/authfailures"
	"petgate/gateway/quotas/store"
	"petgate/shared/background"
	"petgate/shared/core/quota"
)

// Local decides in this process, which is exact for one gateway. Its records survive a restart if
// there is a Saver.
type Local struct {
	config  Config
	metrics *metrics
	records *store.Memory
	loaded  atomic.Bool           // the saved records are in records
	saved   uint64                // the mark of the last dump that was saved
	unsaved atomic.Pointer[error] // of the last save; nil: it succeeded
	tasks   background.Group
}

// loadEvery is how often a failed load of the saved quotas is repeated.
const loadEvery = 500 * time.Millisecond

func openLocal(ctx context.Context, cfg Config) *Local {
	l := &Local{
		config:  cfg,
		metrics: newMetrics(cfg.Metrics, func() time.Duration { return 0 }),
		records: store.NewMemory(cfg.Rule, cfg.Clock),
	}
	l.metrics.setMode(modeMemory)
	if cfg.Saver == nil {
		l.loaded.Store(true)
		return l
	}
	err := l.load(ctx)
	if err != nil {
		cfg.Log.Error("no request is admitted until the saved quotas are loaded", "error", err)
	}
	l.tasks.Go(func(closing context.Context) {
		for err != nil {
			if !background.Pause(closing, loadEvery) {
				return
			}
			if err = l.load(closing); err == nil {
				cfg.Log.Info("the saved quotas are loaded")
			}
		}
		keepSaving(closing, cfg.Log, func() error { return l.save(closing) })
	})
	return l
}

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

// save saves the records that changed since the last save. Only the goroutine that saves calls it,
// and Close after that.
func (l *Local) save(ctx context.Context) error {
	changed, mark := l.records.Dump(l.saved)
	if len(changed) > 0 {
		if err := l.config.Saver.SaveQuotas(ctx, l.records.Now(), changed); err != nil {
			l.metrics.unsaved.Inc()
			l.unsaved.Store(&err)
			return fmt.Errorf("quotas: save the quotas: %w", err)
		}
	}
	l.saved = mark
	l.unsaved.Store(nil)
	return nil
}

// Ready returns an error while no request can be decided. Without the saved records every tenant
// would start with unused limits.
func (l *Local) Ready() error {
	if !l.loaded.Load() {
		return errors.New("the saved quotas are not loaded yet")
	}
	return nil
}

// Take decides on one request. It fails until the saved records are loaded.
func (l *Local) Take(r Request) (v quota.Verdict, err error) {
	if !l.loaded.Load() {
		l.metrics.undecided.Inc()
		return v, ErrUndecided
	}
	v = l.take(&r, 1)
	l.metrics.count(v.Granted, l.metrics.admitted, l.metrics.refused)
	return v, nil
}

func (l *Local) take(r *Request, want int64) quota.Verdict {
	tenant, now := store.Demand{Request: r.Request, Want: want}, l.records.Now()
	if !r.IsCapped() {
		return l.records.Take(now, &tenant)
	}
	own, v := l.records.TakeBoth(now, &store.Demand{Request: r.Own(), Want: want}, &tenant)
	v.Join(&own)
	return v
}

// Known returns current figures.
func (l *Local) Known(r Request) quota.Verdict { return l.take(&r, 0) }

// Current is Known. It fails until the saved records are loaded.
func (l *Local) Current(r Request) (v quota.Verdict, err error) {
	if !l.loaded.Load() {
		return v, ErrUndecided
	}
	return l.Known(r), nil
}

// Peek is Current.
func (l *Local) Peek(_ context.Context, r Request) (quota.Verdict, error) { return l.Current(r) }

// Mode is "memory".
func (l *Local) Mode() string { return modeMemory }

// Health reports that the quotas cannot be saved, for example because the disk is full.
func (l *Local) Health(context.Context) []error {
	if err := l.unsaved.Load(); err != nil {
		return []error{unsavedProblem(*err)}
	}
	return nil
}

func unsavedProblem(err error) error {
	return fmt.Errorf("quotas cannot be saved, so a restart would forget them: %w", err)
}

// AuthFailures returns the limit of failed authentications.
func (l *Local) AuthFailures(perMinute int) *authfailures.Guard {
	return authfailures.New(authfailures.Config{
		PerMinute: perMinute, Clock: l.config.Clock, Metrics: l.metrics.authFailures,
	})
}

// Close saves the records one last time.
func (l *Local) Close(ctx context.Context) error {
	l.tasks.Stop()
	if l.config.Saver == nil {
		return nil
	}
	return l.save(ctx)
}
