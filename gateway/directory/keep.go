package directory

import (
	"errors"
	"io/fs"
	"time"

	"petgate/gateway/directory/snapshot"
	"petgate/shared/keystore"
)

// keepEvery is how often the snapshot is renewed.
const keepEvery = time.Minute

// restore serves from the snapshot until the database is back.
func (d *Directory) restore() {
	next := newState(&d.versions, d.cfg.Environment)
	head, err := d.snapshot.Read(next.rows(next.setBan))
	if err == nil {
		err = next.err
	}
	if errors.Is(err, fs.ErrNotExist) { // as after a clean exit
		d.cfg.Log.Warn("directory: there is no snapshot; no key is known until the database has been read", "path",
			d.cfg.Snapshot)
		return
	}
	if err != nil {
		d.cfg.Log.Error("directory: the snapshot cannot be used", "path", d.cfg.Snapshot, "error", err)
		return
	}
	d.state.Store(next)
	d.position.Store(&head.Position)
	d.loaded(next)
	d.gateways.Store(head.Gateways)
	// Until this process has registered, the shorter of two maximum ages applies: its own and that
	// of the earlier process. The database still has the latter, and keyadmin relies on it.
	configured := d.maxAge.Load()
	isShorter := head.MaxAge > 0 && (configured == 0 || head.MaxAge < configured)
	if !d.follower.registered && isShorter {
		d.maxAge.Store(head.MaxAge)
	}
	seen := time.UnixMilli(head.Seen)
	d.seen.Store(&seen)
	d.cfg.Log.Warn("directory: serving from the snapshot", "path", d.cfg.Snapshot, "keys", next.keys.len, "asOf",
		seen.UTC())
}

// confirmable returns the last event that may be confirmed. With a file that is older than the
// confirmed changes, a restarted gateway would admit a revoked key.
func (d *Directory) confirmable() snapshot.Position {
	if err := d.snapshot.Clean(); err != nil {
		d.follower.complaints.Do(func() {
			d.cfg.Log.Error("directory: no change is confirmed until the old snapshot is removed; "+
				"make its directory writable", "path", d.cfg.Snapshot, "error", err)
		})
		return d.follower.confirmed
	}
	return *d.position.Load()
}

// record adds the head and the changes of a tail to the snapshot. changes may be nil.
func (d *Directory) record(changes func(keystore.Rows)) {
	if err := d.snapshot.Append(d.head(), changes); err != nil {
		d.cfg.Log.Error("directory: running without a snapshot until the next one is written", "error", err)
		d.unkept.Store(&err)
	}
}

func (d *Directory) head() snapshot.Head {
	h := snapshot.Head{Position: *d.position.Load(), Gateways: d.gateways.Load(), MaxAge: d.maxAge.Load()}
	if seen := d.seen.Load(); seen != nil {
		h.Seen = seen.UnixMilli()
	}
	return h
}

// renewSnapshot writes a new snapshot when many changes have been appended to the last one, or if
// that could not be written. Otherwise it notes the last contact with the database.
func (d *Directory) renewSnapshot() {
	if d.snapshot.IsOutdated() {
		_ = d.writeSnapshot() // the next call tries again
	} else {
		d.record(nil)
	}
}

// writeSnapshot writes a new file, if one is kept.
func (d *Directory) writeSnapshot() error {
	if !d.snapshot.IsKept() {
		return nil
	}
	err := d.snapshot.Replace(d.head(), d.state.Load().pass)
	if err != nil {
		d.cfg.Log.Error("directory: cannot write the snapshot; trying again in a minute", "path", d.cfg.Snapshot,
			"error", err)
		d.unkept.Store(&err)
		return err
	}
	d.unkept.Store(nil)
	return nil
}
