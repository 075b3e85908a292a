package directory

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"petgate/gateway/directory/snapshot"
	"petgate/shared/background"
	"petgate/shared/keystore"
)

const (
	pollEvery = time.Second // also between heartbeats; a gateway counts as live for three of these intervals
	retryMin  = 50 * time.Millisecond
	retryMax  = time.Second

	tailEvents = 1000 // read at a time
)

// follower is the directory's progress in the log of events. Only the goroutine that calls sync
// uses it.
type follower struct {
	registered   bool
	registeredAt time.Time         // when that began
	loaded       bool              // from the database, not from a snapshot
	rewound      bool              // the database is an older copy: memory has events that it has lost
	confirmed    snapshot.Position // by the last heartbeat
	beatAt       time.Time         // when that began; zero: the next heartbeat is due
	healthy      bool
	complaints   rate.Sometimes // about a snapshot that cannot be removed
}

// Run follows the events until ctx ends. It returns keystore.ErrDisplaced if another process has
// taken this gateway's ID: Fresh then stays false, and the process should exit. SignOff is called
// after Run.
func (d *Directory) Run(ctx context.Context) error {
	var writers background.Group
	defer writers.Stop()
	writers.Go(d.writeBans)
	writers.Go(d.usage.Run)
	return d.follow(ctx)
}

func (d *Directory) follow(ctx context.Context) error {
	wake := d.store.Listen()
	defer wake.Close()
	// ctx itself is not used: a cancelled statement costs a connection, and every statement ends
	// within seconds anyway.
	work := context.WithoutCancel(ctx)
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	retry := retryMin
	for ctx.Err() == nil {
		err := d.sync(work)
		d.report(err)
		pause := pollEvery
		if err == nil {
			retry = retryMin
		} else if errors.Is(err, keystore.ErrDisplaced) {
			return err
		} else {
			pause, retry = retry, min(2*retry, retryMax)
		}
		select {
		case <-wake.C:
		case <-time.After(pause):
		case <-keep.C:
			d.renewSnapshot()
		case <-ctx.Done():
		}
	}
	return nil
}

// sync does all steps that bring the directory up to date with the database. It stops at the first
// step that fails.
func (d *Directory) sync(ctx context.Context) error {
	f := &d.follower
	if err := d.store.CheckFile(); err != nil {
		f.registered = false // the file that comes next may be another database
		return err
	}
	if !f.registered {
		if err := d.register(ctx); err != nil {
			return err
		}
	}
	if !f.loaded {
		if err := d.load(ctx); err != nil {
			return err
		}
	}
	var begun time.Time
	for {
		begun = d.cfg.Clock()
		events, err := d.tail(ctx)
		if err != nil {
			f.noteRewind(err)
			return err
		}
		if events < tailEvents {
			break
		}
	}
	confirmed := d.confirmable()
	if f.confirmed == confirmed && begun.Sub(f.beatAt) < pollEvery-50*time.Millisecond {
		return nil
	}
	if err := d.heartbeat(ctx, confirmed); err != nil {
		f.registered = !errors.Is(err, keystore.ErrNotFound) && f.registered
		f.noteRewind(err)
		return err
	}
	f.confirmed, f.beatAt = confirmed, begun
	d.seen.Store(&begun)
	return nil
}

func (f *follower) noteRewind(err error) {
	if errors.Is(err, keystore.ErrRewound) {
		f.loaded, f.rewound = false, true
	}
}

// checkRewind checks whether the database still has the last event of the state in memory, which
// may come from a snapshot.
func (d *Directory) checkRewind(ctx context.Context) error {
	f, at := &d.follower, d.position.Load()
	if f.rewound || at.Last == 0 {
		return nil
	}
	known, err := d.store.HasEvent(ctx, at.Last, at.UUID)
	f.rewound = err == nil && !known
	return err
}

// load replaces the whole state.
func (d *Directory) load(ctx context.Context) error {
	if err := d.checkRewind(ctx); err != nil {
		return err
	}
	gateways, err := d.store.Gateways(ctx)
	if err != nil {
		return err
	}
	next := newState(&d.versions, d.cfg.Environment)
	last, uuid, err := d.store.Load(ctx, next.rows(next.setBan))
	if err == nil {
		err = next.err
	}
	if err == nil && d.follower.rewound {
		err = d.keepLost(ctx, d.state.Load(), next)
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.bansMu.Lock()
	for _, ban := range d.pending {
		next.prolongBan(rowOf(ban))
	}
	d.state.Store(next)
	d.bansMu.Unlock()
	d.mu.Unlock()
	f := &d.follower
	f.loaded, f.rewound = true, false
	f.confirmed = snapshot.Position{}
	f.beatAt = time.Time{}
	d.position.Store(&snapshot.Position{Last: last, UUID: uuid})
	d.metrics.loads.Inc()
	if d.seen.Load() == nil { // it serves even if the first heartbeat fails
		d.counted(len(gateways))
		d.seen.Store(&f.registeredAt)
	}
	d.loaded(next)
	// The snapshot comes before the heartbeat that confirms the load: if this process is killed,
	// the next one may start without the database.
	if d.writeSnapshot() != nil {
		_ = d.snapshot.Remove() // it lacks what was loaded; confirmable tries again
	}
	return nil
}

// tail applies the next events and returns how many there were. If the database was restored or an
// event cannot be read, it loads everything and returns 0.
func (d *Directory) tail(ctx context.Context) (int, error) {
	s, at := d.state.Load(), d.position.Load()
	// Everything is read before anything is applied, so that no lock is held during database calls.
	var c changes
	events, err := d.store.Tail(ctx, at.Last, at.UUID, tailEvents, c.rows())
	if err != nil || len(events) == 0 {
		return 0, err
	}
	if i := slices.IndexFunc(events, func(e keystore.EventRow) bool { return e.Err != nil }); i >= 0 {
		d.metrics.unreadable.Inc()
		d.cfg.Log.Error("directory: an event cannot be read, so everything is loaded, "+
			"and the events after it are followed", "event", int64(events[i].ID), "error", events[i].Err)
		return 0, d.load(ctx)
	}
	// Earlier events may have come with rows that the restore has undone, and no event will say so.
	// The database still has all that this process has confirmed, so it has lost no refusal.
	if slices.ContainsFunc(events, func(e keystore.EventRow) bool { return e.Kind == keystore.Restored }) {
		return 0, d.load(ctx)
	}
	if s.lost.touched(events) { // the tail has the rows that they are about
		refusals, err := d.store.LostRefusals(ctx)
		if err != nil {
			return 0, err
		}
		s.setLost(refusals)
	}
	d.mu.Lock()
	c.pass(s.rows(d.setBan))
	d.mu.Unlock()
	if len(c.plans) > 0 {
		d.plansChanged(s)
	}
	if err := s.err; err != nil {
		s.err, d.follower.loaded = nil, false
		return 0, err
	}
	end := events[len(events)-1]
	d.position.Store(&snapshot.Position{Last: end.ID, UUID: end.UUID})
	d.metrics.events.Add(float64(len(events)))
	d.record(c.pass)
	return len(events), nil
}

// setBan applies a ban from the database. A longer ban that was imposed here and is not in the
// database yet stays in force.
func (d *Directory) setBan(b keystore.BanRow) {
	d.bansMu.Lock()
	defer d.bansMu.Unlock()
	if pending := d.pending[b.Key]; pending.Until > b.Until {
		b = rowOf(pending)
	}
	d.state.Load().setBan(b)
}

// report logs once when following the database starts to fail or works again. It keeps the error
// for Ready.
func (d *Directory) report(err error) {
	f := &d.follower
	was := d.fault.Load()
	if err == nil || errors.Is(err, keystore.ErrUnavailable) {
		d.failing.Store(nil)
	} else if now := d.cfg.Clock(); d.failing.Load() == nil {
		d.failing.Store(&now)
	}
	switch {
	case err == nil:
		d.fault.Store(nil)
		if !f.healthy {
			d.cfg.Log.Info("directory: follows the database", "event", int64(d.position.Load().Last), "keys",
				d.state.Load().keys.len, "tenants", d.state.Load().tenants.len)
		}
	case errors.Is(err, keystore.ErrDisplaced):
		d.seen.Store(nil)
		d.cfg.Log.Error("directory: refusing everything from now on", "error", err)
	case was == nil || kindOf(*was) != kindOf(err):
		switch {
		case d.seen.Load() == nil:
			d.cfg.Log.Error("directory: cannot load from the database, so no key is known", "error", err)
		case errors.Is(err, keystore.ErrRewound):
			d.cfg.Log.Warn("directory: the database is an older copy, as after a restore or a fail-over: " +
				"everything is loaded again")
		default:
			d.cfg.Log.Warn("directory: cannot follow the database; what is loaded stays in force", "error", err)
		}
	}
	if err != nil {
		d.fault.Store(&err)
	}
	f.healthy = err == nil
}

// kindOf returns the error in the list below that err is or wraps, or nil. An operator handles each
// of these errors differently.
func kindOf(err error) error {
	for _, kind := range [...]error{
		keystore.ErrUnavailable, keystore.ErrSchema, keystore.ErrRewound, keystore.ErrNotFound,
	} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}
