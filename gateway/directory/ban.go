package directory

import (
	"context"
	"errors"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

// Ban bans a key until an instant: at this gateway at once, and at the others when the row of the ban has been written. A
// background task tries to write the row until it succeeds. A longer ban of the key stays in force.
func (d *Directory) Ban(k id.Key, until instant.Millis, reason string) {
	d.bansMu.Lock()
	defer d.bansMu.Unlock()
	ban := keystore.Ban{
		Key: k, Until: until, Automatic: true, Reason: reason, By: d.cfg.GatewayID, ImposedAt: instant.Of(d.cfg.Clock()),
	}
	if d.state.Load().prolongBan(rowOf(ban)) {
		d.pending[k] = ban
		d.wakeBanWriter()
	}
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

// writeBans writes the rows of the bans imposed here.
func (d *Directory) writeBans(ctx context.Context) {
	retry := retryMin
	for {
		var again <-chan time.Time // nil if nothing is pending
		if d.drainBans(context.WithoutCancel(ctx)) {
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

// drainBans writes the rows of pending bans, and reports whether all are written.
func (d *Directory) drainBans(ctx context.Context) bool {
	for {
		ban, left := d.nextBan()
		if !left {
			return true
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
