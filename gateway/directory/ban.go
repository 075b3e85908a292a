package directory

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

const (
	banRowsPerSecond = 5       // because every gateway reads each row, and many keys may be banned at once
	pendingBansMax   = 1 << 16 // bans whose rows are not written yet
)

// Ban bans a key until an instant: at this gateway at once, and at the others when the row of the
// ban has been written. A background task tries to write the row until it succeeds. If
// pendingBansMax rows are waiting, the ban holds at this gateway only, and is counted as unwritten.
// A longer ban of the key stays in force.
func (d *Directory) Ban(k id.Key, until instant.Millis, reason string) {
	d.bansMu.Lock()
	defer d.bansMu.Unlock()
	ban := keystore.Ban{
		Key:       k,
		Until:     until,
		Automatic: true,
		Reason:    reason,
		By:        d.cfg.GatewayID,
		ImposedAt: instant.Of(d.cfg.Clock()),
	}
	if !d.state.Load().prolongBan(rowOf(ban)) {
		return
	}
	if _, isPending := d.pending[k]; !isPending && len(d.pending) >= pendingBansMax {
		d.metrics.unwrittenBans.Inc()
		return
	}
	d.pending[k] = ban
	d.wakeBanWriter()
}

func rowOf(b keystore.Ban) keystore.BanRow {
	return keystore.BanRow{Key: b.Key, Until: b.Until, Automatic: b.Automatic, Notice: b.Notice}
}

func (d *Directory) wakeBanWriter() {
	select {
	case d.banned <- struct{}{}:
	default:
	}
}

// writeBans writes the rows of the bans imposed here, at most banRowsPerSecond a second, and as
// many in one burst.
func (d *Directory) writeBans(ctx context.Context) {
	retry, rows := retryMin, rate.NewLimiter(banRowsPerSecond, banRowsPerSecond)
	for {
		var again <-chan time.Time // nil if nothing is pending
		if d.drainBans(context.WithoutCancel(ctx), func() bool { return rows.Wait(ctx) == nil }) {
			retry = retryMin
		} else {
			again = time.After(retry)
			retry = min(2*retry, retryMax)
		}
		select {
		case <-d.banned:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// drainBans writes the rows of pending bans while may returns true, and reports whether all are
// written.
func (d *Directory) drainBans(ctx context.Context, may func() bool) bool {
	for {
		ban, left := d.nextBan()
		if !left {
			return true
		}
		if !may() {
			return false
		}
		_, _, err := d.store.AddBan(ctx, ban)
		if err != nil && !errors.Is(err, keystore.ErrNotFound) && !errors.Is(err, keystore.ErrInvalid) {
			return false
		}
		d.bansMu.Lock()
		if d.pending[ban.Key] == ban {
			delete(d.pending, ban.Key)
		}
		d.bansMu.Unlock()
	}
}

func (d *Directory) nextBan() (keystore.Ban, bool) {
	d.bansMu.Lock()
	defer d.bansMu.Unlock()
	for _, ban := range d.pending {
		return ban, true
	}
	return keystore.Ban{}, false
}
