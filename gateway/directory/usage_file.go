package directory

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/time/rate"

	"petgate/shared/core/instant"
	"petgate/shared/durable"
	"petgate/shared/keystore"
)

const (
	keepUsageAfter = 250 * time.Millisecond // without an answer from the database
	keepUsageEvery = time.Second
)

// usageFile keeps usage beside the snapshot while the database does not take it. The next process
// of this gateway stores it.
type usageFile struct {
	path       string // empty: none is kept
	exists     bool
	left       []leftUsage // by earlier processes
	complaints rate.Sometimes
}

// leftUsage is what a process has counted and the database perhaps lacks.
type leftUsage struct {
	Process  keystore.Registration
	Unstored unstored
	Through  instant.Millis // every request that it decided on before is in the database or here
	Ended    bool           // all of its requests are
}

var errNoUsageFile = errors.New("no snapshot is kept: set GATEWAY_SNAPSHOT to a file of this gateway alone")

func (f *usageFile) read() error {
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.exists = true
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(content)).Decode(&f.left)
	}
	return err
}

// write writes all that waits. The lock of the usage must be held.
func (f *usageFile) write(d *Directory, ended bool) error {
	u, all := &d.usage, f.left
	if f.path == "" {
		return errNoUsageFile
	}
	if u.Sent != nil || len(u.Rows) > 0 || len(u.Minutes) > 0 {
		all = append(all[:len(all):len(all)], leftUsage{d.current(), u.unstored, u.collectedAt.Add(-u.settles), ended})
	}
	if len(all) == 0 {
		return nil
	}
	var content bytes.Buffer
	if err := gob.NewEncoder(&content).Encode(all); err != nil {
		return err
	}
	f.exists = true
	return durable.Write(f.path, content.Bytes())
}

// renew makes the file hold what waits now, or removes it if nothing else waits. If there is no
// file, it stays so. The lock of the usage must be held.
func (f *usageFile) renew(d *Directory, waits bool) error {
	if !f.exists {
		return nil
	}
	if waits || len(f.left) > 0 {
		err := f.write(d, false)
		if err == nil {
			return nil
		}
		f.complain(d, err)
	}
	err := durable.Remove(f.path)
	f.exists = err != nil
	return err
}

func (f *usageFile) complain(d *Directory, err error) {
	f.complaints.Do(func() {
		d.cfg.Log.Error("directory: usage that waits for the database is only in memory", "path", f.path, "error", err)
	})
}

// keepUsage writes what waits for the database to the file. ended: this process counts no more
// requests.
func (d *Directory) keepUsage(ended bool) error {
	u := &d.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.collectedAt = instant.Of(d.cfg.Clock())
	u.collect(time.Now(), u.collectedAt)
	err := u.file.write(d, ended)
	if err != nil && u.file.path != "" {
		u.file.complain(d, err)
	}
	return err
}

// renewUsageFile keeps an existing file up to date.
func (d *Directory) renewUsageFile(ctx context.Context) {
	for wait(ctx, keepUsageEvery) {
		d.usage.mu.Lock()
		exists := d.usage.file.exists
		d.usage.mu.Unlock()
		if exists {
			_ = d.keepUsage(false) // it has complained
		}
	}
}

// storeLeft stores what earlier processes have left, each under its own registration, so that a
// batch which had arrived does not count twice. Register ends these registrations.
func (d *Directory) storeLeft(ctx context.Context) error {
	u := &d.usage
	for len(u.file.left) > 0 {
		l := &u.file.left[0]
		mine := l.Process.ID == d.cfg.GatewayID
		err := d.storeLeftOf(ctx, l, mine)
		if errors.Is(err, keystore.ErrUnavailable) {
			return err
		}
		if err != nil {
			d.cfg.Log.Error("directory: usage of an earlier process is lost", "gateway", l.Process.ID, "error", err)
		}
		u.mu.Lock()
		u.file.left = u.file.left[1:]
		kept := u.file.renew(d, u.Sent != nil || len(u.Rows) > 0)
		u.mu.Unlock()
		// Only when the file is certainly without it: the database forgets which batches of the
		// process it has.
		if mine && err == nil && kept == nil && l.Ended {
			if err := d.store.SignOff(ctx, l.Process); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeLeftOf stores what one process has left. mine: it had this gateway's ID.
func (d *Directory) storeLeftOf(ctx context.Context, l *leftUsage, mine bool) (err error) {
	register := func(through instant.Millis) error {
		if !mine { // another gateway may have that ID now
			return nil
		}
		process := l.Process
		process.UsageThrough = through
		process.Generation, err = d.store.Register(ctx, process, nil)
		d.usage.mu.Lock() // the file may be written meanwhile
		l.Process = process
		d.usage.mu.Unlock()
		return err
	}
	if err := register(l.Process.UsageThrough); err != nil { // it may be missing: forgotten, or never registered in the outage
		return err
	}
	if err := d.storeUsage(ctx, l.Process, &l.Unstored, true); err != nil {
		return err
	}
	d.cfg.Log.Info("directory: stored the usage that an earlier process had kept in a file", "gateway", l.Process.ID,
		"asOf", l.Through.Time())
	return register(l.Through)
}
