package usage

import (
	"context"
	"errors"
	"time"

	"petgate/shared/background"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	stored "petgate/shared/keystore/usage"
)

const (
	flushEvery = 3 * time.Second

	keepAfter = 250 * time.Millisecond // without an answer from the database
	keepEvery = time.Second
)

// Run writes what is counted every few seconds, until ctx ends. While the database does not take
// it, a file keeps it. Finish or Leave is called after Run.
func (c *Counter) Run(ctx context.Context) {
	var keeper background.Group
	defer keeper.Stop()
	keeper.Go(c.renewFile)
	failing := false
	for background.Pause(ctx, flushEvery) {
		err := c.drain(context.WithoutCancel(ctx), false)
		if err != nil && !failing {
			c.cfg.Log.Warn("usage: cannot be written; it is kept and written later", "error", err)
		}
		failing = err != nil
	}
}

// renewFile keeps an existing file up to date.
func (c *Counter) renewFile(ctx context.Context) {
	for background.Pause(ctx, keepEvery) {
		c.mu.Lock()
		exists := c.file.exists
		c.mu.Unlock()
		if exists {
			_ = c.keep(false) // it has complained
		}
	}
}

// Finish writes all that was counted, after the last request. What the database does not take is
// left to the next process, and Finish reports false: until then, it is a gap.
func (c *Counter) Finish(ctx context.Context) bool {
	err := c.drain(ctx, true)
	if err != nil {
		c.Leave(err)
	}
	return err == nil
}

// Leave leaves all that was counted to the next process, after the last request. cause is why the
// database has not got it.
func (c *Counter) Leave(cause error) {
	if err := c.keep(true); err != nil {
		c.cfg.Log.Error("usage: what waits for the database is lost", "error", errors.Join(cause, err))
		return
	}
	c.cfg.Log.Warn("usage: not all is stored; the next start of this gateway stores it", "path", c.cfg.File,
		"error", cause)
}

// drain writes all counts, and the minutes if a new minute has begun or this is the last time. It
// keeps what it cannot write. One goroutine calls it at a time.
func (c *Counter) drain(ctx context.Context, isLast bool) error {
	c.mu.Lock()
	now := instant.Of(c.cfg.Clock())
	collectedBefore := c.collectedAt
	c.collect(time.Now(), now)
	c.collectedAt = now
	minute := now.Truncate(time.Minute)
	withMinutes := isLast || minute != c.minutesAt
	c.mu.Unlock()
	if err := c.store(ctx, c.cfg.Process(), &c.backlog, withMinutes); err != nil {
		_ = c.keep(false) // it has complained
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if withMinutes {
		c.minutesAt = minute
	}
	// Not now minus settles: if the whole process was paused, requests that began before the pause
	// may not be counted yet.
	c.through.Store(int64(collectedBefore.Add(-c.settles)))
	return nil
}

// store stores the backlog of a process, in batches.
func (c *Counter) store(ctx context.Context, process keystore.Registration, from *backlog, withMinutes bool) error {
	for {
		c.mu.Lock()
		next := from.next(withMinutes)
		// Even before the first: the file must not have other requests under a number that the
		// database knows, or they would count twice.
		err := c.file.renew(c.own(false), next != nil)
		c.mu.Unlock()
		if err != nil || next == nil {
			return err
		}
		if err := c.send(ctx, process, from.Batch, next); err != nil {
			return err
		}
		c.mu.Lock()
		from.Sent = nil
		c.mu.Unlock()
	}
}

// send sends one batch. If the database is slow to answer, it writes the file meanwhile.
func (c *Counter) send(ctx context.Context, process keystore.Registration, number int64, b *batch) error {
	kept := make(chan struct{})
	slow := time.AfterFunc(keepAfter, func() {
		defer close(kept)
		_ = c.keep(false) // it has complained
	})
	var err error
	if b.Dropped {
		// Before AddUsage: once that time counts as stored, its gap must be known.
		err = stored.Of(c.cfg.Store).NoteDropped(ctx, process, number)
	}
	if err == nil {
		err = stored.Of(c.cfg.Store).AddUsage(ctx, process, number, b.Rows, b.Minutes)
	}
	if !slow.Stop() {
		<-kept // or it might overwrite what the end of this process, or the next process, writes
	}
	return err
}

// keep writes what waits for the database to the file. hasEnded: this process counts no more
// requests.
func (c *Counter) keep(hasEnded bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collectedAt = instant.Of(c.cfg.Clock())
	c.collect(time.Now(), c.collectedAt)
	err := c.file.write(c.own(hasEnded))
	if err != nil && c.file.path != "" {
		c.file.complain(err)
	}
	return err
}

// own is what the file keeps of this process. The caller holds mu.
func (c *Counter) own(hasEnded bool) earlier {
	process := c.cfg.Process()
	process.UsageThrough = c.Through()
	return earlier{
		Process:  process,
		Unstored: c.backlog,
		Through:  c.collectedAt.Add(-c.settles),
		Ended:    hasEnded,
	}
}

// StoreEarlier stores what earlier processes have left, each under its own registration, so that a
// batch which had arrived does not count twice. It is called before this process registers, which
// ends those registrations. One goroutine calls it at a time.
func (c *Counter) StoreEarlier(ctx context.Context) error {
	for len(c.file.earlier) > 0 {
		first := &c.file.earlier[0]
		isMine := first.Process.ID == c.cfg.Process().ID
		err := c.storeEarlier(ctx, first, isMine)
		if errors.Is(err, keystore.ErrUnavailable) {
			return err
		}
		if err != nil {
			c.cfg.Log.Error("usage: what an earlier process counted is lost", "gateway", first.Process.ID, "error", err)
		}
		c.mu.Lock()
		c.file.earlier = c.file.earlier[1:]
		kept := c.file.renew(c.own(false), c.backlog.Sent != nil || len(c.backlog.Rows) > 0)
		c.mu.Unlock()
		// Only when the file is certainly without it: the database forgets which batches of the
		// process it has.
		if isMine && err == nil && kept == nil && first.Ended {
			if err := c.cfg.Store.SignOff(ctx, first.Process); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeEarlier stores what one process has left. Its registration may be missing, because it was
// forgotten or never made: then it is made again, before and after the last batch.
func (c *Counter) storeEarlier(ctx context.Context, e *earlier, isMine bool) error {
	if isMine { // otherwise another gateway may have that ID now
		if err := c.register(ctx, e, e.Process.UsageThrough); err != nil {
			return err
		}
	}
	if err := c.store(ctx, e.Process, &e.Unstored, true); err != nil {
		return err
	}
	c.cfg.Log.Info("usage: stored what an earlier process had kept in a file", "gateway", e.Process.ID,
		"asOf", e.Through.Time())
	if isMine {
		return c.register(ctx, e, e.Through)
	}
	return nil
}

// register registers an earlier process, whose usage is stored up to an instant.
func (c *Counter) register(ctx context.Context, e *earlier, through instant.Millis) (err error) {
	process := e.Process
	process.UsageThrough = through
	process.Generation, err = c.cfg.Store.Register(ctx, process, nil)
	c.mu.Lock() // the file may be written meanwhile
	e.Process = process
	c.mu.Unlock()
	return err
}
