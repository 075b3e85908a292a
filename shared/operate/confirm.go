package operate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"petgate/shared/keystore"
)

// UsualWait is how long to wait for gateways, unless somebody says otherwise.
const UsualWait = 5 * time.Second

// Registry lists the gateways with the changes that they have applied.
type Registry interface {
	Gateways(ctx context.Context) ([]keystore.Gateway, error)
}

// The interval between two reads of the gateways' progress. It begins short, because a healthy
// gateway needs a few ms.
const (
	pollFirst = 2 * time.Millisecond
	pollLast  = 50 * time.Millisecond
)

// Wait waits until every registered gateway has applied a change. It reads the list again each
// time: a gateway that registers in the meantime may have begun to read the database before the
// change. The end of ctx only ends the wait: the change is made, and the gateways that have not
// confirmed are still named. sleep returns nil after a duration, or the context's error.
func Wait(
	ctx context.Context,
	r Registry,
	change keystore.Change,
	wait time.Duration,
	clock func() time.Time,
	sleep func(context.Context, time.Duration) error,
) Progress {
	begin := clock()
	var watch keystore.Watch
	for pause := pollFirst; ; pause = min(2*pause, pollLast) {
		// Not ctx: after its end, the laggards must still be read. The database's own timeouts end
		// the read.
		gateways, err := r.Gateways(context.WithoutCancel(ctx))
		now := clock()
		p := measure(gateways, change, func(g keystore.Gateway) bool { return watch.Fenced(g, now) })
		p.Waited, p.Err = now.Sub(begin), err
		if p.IsConfirmed() {
			return p
		}
		if p.Waited >= wait || sleep(ctx, min(pause, wait-p.Waited)) != nil {
			return p
		}
	}
}

// Progress says which gateways have applied one change.
type Progress struct {
	All, Applied     int
	Fenced, Laggards []keystore.Gateway
	Waited           time.Duration
	Err              error // the progress cannot be read
}

// IsConfirmed reports whether the change is in force at every gateway.
func (p Progress) IsConfirmed() bool { return p.Err == nil && len(p.Laggards) == 0 }

func measure(gateways []keystore.Gateway, change keystore.Change, isFenced func(keystore.Gateway) bool) Progress {
	p := Progress{All: len(gateways)}
	for _, g := range gateways {
		switch {
		case g.Applied >= change:
			p.Applied++
		case isFenced(g):
			p.Fenced = append(p.Fenced, g)
		default:
			p.Laggards = append(p.Laggards, g)
		}
	}
	return p
}

// Text says which gateways have confirmed the change, and in what time. laggard is that of the
// Operation.
func (p Progress) Text(laggard string) string {
	switch {
	case p.IsConfirmed():
		return p.confirmed()
	case p.Err != nil:
		return "done, but not confirmed: the gateways' progress cannot be read: " + p.Err.Error()
	}
	return p.unconfirmed(laggard)
}

func (p Progress) confirmed() string {
	if p.All == 0 {
		return "no gateway is registered, so no confirmation is needed"
	}
	text := fmt.Sprintf("confirmed by %d of %d gateways in %s", p.Applied, p.All, Span(p.Waited))
	for _, g := range p.Fenced {
		text += fmt.Sprintf(
			"\n  %s is fenced: it refuses every call until it has caught up, because it was silent for longer "+
				"than its maximum age",
			GatewayName(g),
		)
	}
	return text
}

func (p Progress) unconfirmed(laggard string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "done, but confirmed by only %d of %d gateways after %s:", p.Applied+len(p.Fenced), p.All,
		Span(p.Waited))
	for _, g := range p.Laggards {
		state := "last seen " + Age(g) + " ago"
		switch {
		case g.Replaced:
			state = "replaced by another process with its ID but not known to have ended, " + state
		case g.IsSilent():
			state = "silent for " + Age(g)
		case g.Applied == 0:
			state = "still starting"
		}
		fmt.Fprintf(&text, "\n  %s, %s, %s", GatewayName(g), state, laggard)
	}
	return text.String()
}

// Advice is a sentence on what to do about the laggards: forget a silent gateway that nothing
// fences, if it has ended, or wait. The caller gives its end: inFenced, on how to see the change
// confirmed once all of them are fenced; or where, on where to look at them while they catch up.
func (p Progress) Advice(inFenced func(time.Duration) string, where string) string {
	var fenced time.Duration
	for _, g := range p.Laggards {
		switch {
		// never forget a gateway that was seen a moment ago: it runs, and changes would not wait
		// for it
		case !g.IsSilent():
		case g.MaxAge == 0:
			return forgetCure("a silent gateway", g.ID)
		default:
			fenced = max(fenced, g.FenceAfter())
		}
	}
	if fenced > 0 {
		return "A silent gateway refuses every call once its maximum age has passed" + inFenced(fenced)
	}
	return "Gateways seen recently are probably still catching up" + where
}

// Sleep returns nil after a duration, or the error of the context if that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
