package directory

import (
	"context"
	"errors"
	"time"

	"petgate/shared/keystore"
)

// signOffWithin bounds a sign-off. If the database is silent, its first statement is also the last
// one.
const signOffWithin = 5 * time.Second

// untilItStarts is what follows if a gateway has not signed off.
const untilItStarts = "changes wait for this gateway until it starts again or is forgotten"

// SignOff writes the remaining bans and usage, and signs off: after that, changes do not wait for
// this gateway. It is called once, after Run, when the gateway accepts no more requests and its
// quotas are saved. Without a database it keeps both the registration and the snapshot: the gateway
// still counts, and may serve again. It begins no statement after signOffWithin.
//
// unreported has the requests that Redis has not got from this gateway; "": none. The same
// transaction hands them to the other gateways. SignOff reports whether it has certainly signed
// off.
func (d *Directory) SignOff(unreported string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), signOffWithin)
	defer cancel()
	defer d.snapshot.Close()
	return d.signOff(ctx, unreported)
}

func (d *Directory) signOff(ctx context.Context, unreported string) bool {
	if fault := d.fault.Load(); fault != nil && !errors.Is(*fault, keystore.ErrDisplaced) {
		d.record(nil)
		d.usage.Leave(*fault)
		return false
	}
	bansEnd := time.Now().Add(signOffWithin / 2) // the rest is for usage and the sign-off itself
	if !d.drainBans(ctx, func() bool { return time.Now().Before(bansEnd) }) {
		d.bansMu.Lock()
		d.cfg.Log.Warn("directory: bans are lost, because their rows could not be written", "bans", len(d.pending))
		d.bansMu.Unlock()
	}
	signOff := d.store.SignOff
	if !d.usage.Finish(ctx) {
		signOff = d.store.SignOffWithGap
	}
	if _, err := d.store.LastEvent(ctx); err != nil { // perhaps an outage that nothing noticed before
		d.cfg.Log.Warn("directory: did not sign off; "+untilItStarts, "error", err)
		d.record(nil)
		return false
	}
	// Remove the snapshot first, and sign off only if it is certainly gone: confirmations do not
	// wait for a gateway that has signed off, so a later start must not find the file. It must also
	// be gone if SignOff returns an error, because SignOff may have succeeded.
	if err := d.snapshot.Remove(); err != nil {
		d.cfg.Log.Error("directory: did not sign off, since the snapshot cannot be removed; "+untilItStarts,
			"path", d.cfg.Snapshot, "error", err)
		return false
	}
	self := *d.self.Load()
	self.Unreported = unreported
	err := signOff(ctx, self)
	if err != nil {
		d.cfg.Log.Warn("directory: could not sign off; "+untilItStarts, "error", err)
	}
	return err == nil
}
