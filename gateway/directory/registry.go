package directory

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"petgate/gateway/directory/snapshot"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

const (
	silentEvery = 5 * time.Second // between two searches for silent gateways

	skewMax = time.Second // a larger difference from the database's clock is reported

	// yieldFor is how long a process waits for another one that has its ID. One that was killed is
	// silent by then.
	yieldFor = keystore.SilentAfter + 2*time.Second
)

// registry is what the directory knows about the list of gateways. Only the goroutine that calls
// sync uses it.
type registry struct {
	generation int64          // as of the last count
	watch      keystore.Watch // of the silent gateways
	watchedAt  time.Time
	ended      []string // incarnations of this gateway's earlier processes that have certainly ended
}

// register adds this process to the list of gateways. It removes earlier processes of this gateway
// that have certainly ended.
func (d *Directory) register(ctx context.Context) error {
	begun := d.cfg.Clock()
	if err := d.store.CheckSchema(ctx); err != nil {
		return err
	}
	self := d.current()
	if err := d.yield(ctx, self); err != nil {
		return err
	}
	if err := d.usage.StoreEarlier(ctx); err != nil {
		return err
	}
	generation, err := d.store.Register(ctx, self, d.registry.ended)
	if err != nil {
		return err
	}
	self.Generation = generation
	d.self.Store(&self)
	d.maxAge.Store(self.MaxAge.Milliseconds())
	d.follower.registered, d.follower.registeredAt = true, begun
	d.follower.beatAt = time.Time{}
	d.isDescribed.Store(false)
	return nil
}

// yield waits until no other process that has this gateway's ID sends heartbeats, but for those
// that have certainly ended. If one still does after yieldFor, it keeps the ID. A process that has
// registered before does not wait.
func (d *Directory) yield(ctx context.Context, self keystore.Registration) error {
	lives := func(g keystore.Gateway) bool {
		return !g.Replaced && !g.IsSilent() && !slices.Contains(d.registry.ended, g.Incarnation)
	}
	for began := time.Now(); self.Generation == 0; time.Sleep(pollEvery / 4) {
		all, err := d.store.Gateways(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(g keystore.Gateway) bool {
			return g.ID == self.ID && g.Incarnation != self.Incarnation && lives(g)
		})
		if i < 0 {
			return nil
		}
		if time.Since(began) > yieldFor {
			return fmt.Errorf("%w: it is %s, with the admin port %s", keystore.ErrDisplaced,
				processOf(all[i].Incarnation), all[i].AdminAddress)
		}
	}
	return nil
}

// newIncarnation names this process.
func newIncarnation() string {
	host, _ := os.Hostname() // it is only shown
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text())
}

// processOf describes the process that has an incarnation.
func processOf(incarnation string) string {
	host, rest, _ := strings.Cut(incarnation, ":")
	pid, _, _ := strings.Cut(rest, ":")
	return "process " + pid + " on host " + host
}

// Describe stores with the gateway's registration what it says of its document, with the next
// heartbeat.
func (d *Directory) Describe(document keystore.Document) {
	d.document.Store(&document)
	d.isDescribed.Store(false)
}

// current returns this process's registration with the instant up to which its usage is stored.
func (d *Directory) current() keystore.Registration {
	self := *d.self.Load()
	self.UsageThrough = d.usage.Through()
	return self
}

// heartbeat reports the confirmed event, and uses the answer to update the clock skew and the
// number of gateways.
func (d *Directory) heartbeat(ctx context.Context, confirmed snapshot.Position) error {
	if !d.isDescribed.Swap(true) {
		if err := d.store.DescribeGateway(ctx, d.current(), *d.document.Load()); err != nil {
			d.isDescribed.Store(false)
			return err
		}
	}
	asked := d.cfg.Clock()
	beat, err := d.store.Heartbeat(ctx, d.current(), confirmed.Last, confirmed.UUID)
	if err != nil {
		return err
	}
	d.measureSkew(asked, d.cfg.Clock(), beat.Now)
	if beat.Registry != d.registry.generation {
		gateways, err := d.store.Gateways(ctx)
		if err != nil {
			return err
		}
		// Read after the count: if a gateway was no longer counted, the list has what it left.
		unreported, err := d.store.Unreported(ctx)
		if err != nil {
			return err
		}
		d.unreported.Store(&unreported)
		d.registry.generation = beat.Registry
		d.counted(len(gateways))
	}
	return d.removeFenced(ctx, asked)
}

// counted notes how many gateways are registered.
func (d *Directory) counted(gateways int) {
	n := max(gateways, 1)
	if was := int(d.gateways.Swap(int64(n))); was != n && d.cfg.GatewaysChanged != nil {
		d.cfg.GatewaysChanged(was, n)
	}
}

// removeFenced removes gateways that have been silent for so long that they refuse every request.
// Changes then do not wait for them, and they get no share of the limits.
func (d *Directory) removeFenced(ctx context.Context, now time.Time) error {
	r := &d.registry
	if last := d.seen.Load(); last != nil && now.Sub(*last) > keystore.SilentAfter {
		r.watch = keystore.Watch{} // what cut this gateway off may have cut off the others, and may still
	}
	if now.Sub(r.watchedAt) < silentEvery {
		return nil
	}
	r.watchedAt = now
	gateways, err := d.store.Gateways(ctx)
	if err != nil {
		return err
	}
	r.watch.Keep(gateways)
	for _, g := range gateways {
		if g.Incarnation == d.self.Load().Incarnation || !r.watch.Fenced(g, now) {
			continue
		}
		removed, err := d.store.RemoveFenced(ctx, g)
		if err != nil {
			return err
		}
		if removed {
			d.cfg.Log.Warn("directory: removed a silent gateway; its maximum age has passed, so it refuses every call",
				"gateway", g.ID, "adminAddress", g.AdminAddress, "incarnation", g.Incarnation)
		}
	}
	return nil
}

// measureSkew compares the clocks. The database read its clock at some time between asked and
// answered, so the result is uncertain by half of that time.
func (d *Directory) measureSkew(asked, answered time.Time, database instant.Millis) {
	half := answered.Sub(asked) / 2
	skew := asked.Add(half).Sub(database.Time())
	skew -= max(-half, min(skew, half))
	was := time.Duration(d.skew.Swap(int64(skew)))
	if was.Abs() <= skewMax && skew.Abs() > skewMax {
		d.cfg.Log.Warn("directory: " + skewText(skew))
	}
}

// Skewed returns an error if this host's clock and the database's differed by more than a second at
// the last heartbeat.
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
	return fmt.Sprintf("this host's clock is %s %s the database's. "+
		"This gateway uses its own clock for expiry, grace periods and bans: check NTP on both hosts",
		skew.Abs().Round(100*time.Millisecond), direction)
}

// Gateways returns how many gateway processes were registered when the database was last read,
// including this one; at least 1. A gateway counts until it signs off, is forgotten or is fenced,
// even if it was not seen recently.
func (d *Directory) Gateways() int { return int(d.gateways.Load()) }

// Unreported returns the requests that gateways have left to the others, as of the same time as
// Gateways. The caller must not change it.
func (d *Directory) Unreported() []string {
	if texts := d.unreported.Load(); texts != nil {
		return *texts
	}
	return nil
}

// TakeUnreported is keystore.Store's.
func (d *Directory) TakeUnreported(ctx context.Context, keep func(texts []string) error) error {
	return d.store.TakeUnreported(ctx, keep)
}
