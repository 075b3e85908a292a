package directory

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

const (
	silentEvery = 5 * time.Second // how often silent gateways are looked for

	skewMax = time.Second // a larger difference to the database's clock is reported
)

// registry is what the directory knows of the list of gateways. It belongs to the goroutine that calls sync.
type registry struct {
	generation int64          // as of the last count
	watch      keystore.Watch // of the silent ones
	watchedAt  time.Time
}

// register makes this process count. Earlier processes of this gateway that have certainly ended are removed.
func (d *Directory) register(ctx context.Context) error {
	if err := d.store.CheckSchema(ctx); err != nil {
		return err
	}
	self := *d.self.Load()
	generation, err := d.store.Register(ctx, self, d.processes.dead)
	if err != nil {
		return err
	}
	self.Generation = generation
	d.self.Store(&self)
	d.maxAge.Store(self.MaxAge.Milliseconds())
	d.follower.registered = true
	d.follower.reportedAt = time.Time{}
	return nil
}

// heartbeat reports the confirmed event and takes in what the database answers.
func (d *Directory) heartbeat(ctx context.Context, confirmed keystore.Change, uuid string) error {
	asked := d.cfg.Clock()
	beat, err := d.store.Heartbeat(ctx, *d.self.Load(), confirmed, uuid)
	if err != nil {
		return err
	}
	d.measureSkew(asked, d.cfg.Clock(), beat.Now)
	if beat.Registry != d.registry.generation {
		n, err := d.store.CountGateways(ctx)
		if err != nil {
			return err
		}
		d.registry.generation = beat.Registry
		n = max(n, 1)
		if was := int(d.gateways.Swap(int64(n))); was != n && d.cfg.GatewaysChanged != nil {
			d.cfg.GatewaysChanged(was, n)
		}
	}
	return d.removeFenced(ctx, asked)
}

// removeFenced removes gateways that were silent for so long that they refuse everything. They need not be waited for, and get no
// share of the limits.
func (d *Directory) removeFenced(ctx context.Context, now time.Time) error {
	r := &d.registry
	if now.Sub(r.watchedAt) < silentEvery {
		return nil
	}
	r.watchedAt = now
	silent, err := d.store.SilentGateways(ctx)
	if err != nil {
		return err
	}
	r.watch.Keep(silent)
	for _, g := range silent {
		if g.Incarnation == d.self.Load().Incarnation || !r.watch.Fenced(g, now) {
			continue
		}
		removed, err := d.store.RemoveFenced(ctx, g)
		if err != nil {
			return err
		}
		if removed {
			d.cfg.Log.Warn("directory: removed a silent gateway; its maximum age has passed, so it refuses every call", "gateway", g.ID,
				"adminAddress", g.AdminAddress, "incarnation", g.Incarnation)
		}
	}
	return nil
}

// measureSkew compares the clocks. The database's was read somewhere between asked and answered, so half of the time between them
// is not known.
func (d *Directory) measureSkew(asked, answered time.Time, database instant.Millis) {
	half := answered.Sub(asked) / 2
	skew := asked.Add(half).Sub(database.Time())
	switch {
	case skew > half:
		skew -= half
	case skew < -half:
		skew += half
	default:
		skew = 0
	}
	was := time.Duration(d.skew.Swap(int64(skew)))
	if was.Abs() <= skewMax && skew.Abs() > skewMax {
		d.cfg.Log.Warn("directory: " + skewText(skew))
	}
}

// Skewed returns an error if this host's clock and the database's differed by more than a second at the last heartbeat.
func (d *Directory) Skewed() error {
	if skew := time.Duration(d.skew.Load()); skew.Abs() > skewMax {
		return fmt.Errorf("%s", skewText(skew))
	}
	return nil
}

func skewText(skew time.Duration) string {
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return fmt.Sprintf("this host's clock is %s %s the database's; expiry, grace periods and bans are judged by it: check NTP on both",
		skew.Abs().Round(100*time.Millisecond), direction)
}

// Gateways returns how many gateway processes, this one among them, were registered when the database was last read; at least 1.
// A gateway counts until it signs off, is forgotten or is fenced, whether or not it was seen recently.
func (d *Directory) Gateways() int { return int(d.gateways.Load()) }
