package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"petgate/shared/keystore"
)

// asking is the flag of commands that take something away.
type asking struct {
	Yes bool `short:"y" help:"Do not ask for confirmation. Needed where there is no terminal to ask at."`
}

// ifNotExists is the flag of commands that create something, for scripts that may run again.
type ifNotExists struct {
	IfNotExists bool `help:"If it already exists, change nothing and end with 0."`
}

// waiting is the flag of commands whose change gateways have to apply.
type waiting struct {
	Wait patience `placeholder:"AGE" help:"How long to wait until all gateways have applied the change: 0 = check once (default: 5s, or 0 if only gateways are missing that have been silent for 10 s)."`
}

// patience is how long to wait for gateways. The zero value is the default.
type patience struct {
	given bool
	max   time.Duration // if given
}

func (p *patience) UnmarshalText(text []byte) error {
	max, err := parseDuration(string(text))
	*p = patience{given: true, max: max}
	return err
}

const (
	waitDefault = 5 * time.Second

	// hopelessAfter is how long a gateway must have been silent so that commands do not wait for it by default. After an outage of
	// the database, a gateway needs about a second to be back.
	hopelessAfter = 10 * time.Second
)

func (p patience) limit() time.Duration {
	if p.given {
		return p.max
	}
	return waitDefault
}

// isHopeless reports whether it is not worth waiting: only gateways are missing that have been silent for long, and waiting would not
// fence them.
func (p patience) isHopeless(laggards []keystore.Gateway) bool {
	return !p.given && !slices.ContainsFunc(laggards, func(g keystore.Gateway) bool {
		fence := g.FenceAfter()
		return g.Age < hopelessAfter.Milliseconds() || fence > 0 && fence < waitDefault
	})
}

// confirmation describes a change to wait for.
type confirmation struct {
	change  keystore.Change
	wait    patience
	laggard string // what a gateway that has not applied the change may do: "may still accept this key"
	done    string // what to say before waiting; may be empty
	alone   string // what to add if no gateway is registered; may be empty
}

// either returns the text done if something changed, and otherwise the text nothing. keyadmin waits in both cases: the command may
// repeat an earlier one that was not confirmed.
func either(changed bool, done, nothing string) string {
	if changed {
		return done
	}
	return nothing
}

// unconfirmedError is a change that was made, but that a gateway may not have applied: exit 3.
type unconfirmedError struct{ text string }

func (e unconfirmedError) Error() string { return e.text }

// registry lists the gateways with the changes that they have applied.
type registry interface {
	Gateways(ctx context.Context) ([]keystore.Gateway, error)
}

// The interval between two reads of the gateways' progress. It begins short, because a healthy gateway needs a few ms.
const (
	pollFirst = 2 * time.Millisecond
	pollLast  = 50 * time.Millisecond
)

// sayAfter is how long a person at a terminal waits without a word.
const sayAfter = time.Second

// confirm waits until every registered gateway has applied a change. It reads the list again each time: a gateway that
// registers in the meantime may have begun to read the database before the change.
func (a *app) confirm(ctx context.Context, c confirmation) error {
	// The change is made. An interrupt only ends the wait; the gateways that have not confirmed must still be named.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.done != "" {
		a.note("%s", c.done)
	}
	return a.confirmBy(ctx, a.store, c)
}

func (a *app) confirmBy(ctx context.Context, r registry, c confirmation) error {
	begin, said, wait := a.Clock(), false, c.wait.limit()
	var watch keystore.Watch
	for pause := pollFirst; ; pause = min(2*pause, pollLast) {
		// Not ctx: after an interrupt, the laggards must still be read. The database's own timeouts end the read.
		gateways, err := r.Gateways(context.WithoutCancel(ctx))
		now := a.Clock()
		p := measure(gateways, c.change, func(g keystore.Gateway) bool { return watch.Fenced(g, now) })
		waited := now.Sub(begin)
		if err == nil && len(p.laggards) == 0 {
			a.note("%s", p.confirmed(waited))
			if p.all == 0 && c.alone != "" {
				a.note("%s", c.alone)
			}
			return nil
		}
		if err == nil && c.wait.isHopeless(p.laggards) {
			return unconfirmedError{p.hopeless(c.laggard)}
		}
		if err == nil && waited >= sayAfter && !said && a.ErrTerminal && waited < wait {
			said = true
			a.note("%s", p.waiting(wait))
		}
		if waited < wait && a.Sleep(ctx, min(pause, wait-waited)) == nil {
			continue
		}
		if err != nil {
			return unconfirmedError{"done, but not confirmed: the gateways' progress cannot be read: " + err.Error()}
		}
		return unconfirmedError{p.unconfirmed(waited, c.laggard)}
	}
}

// progress says which gateways have applied one change.
type progress struct {
	all, applied     int
	fenced, laggards []keystore.Gateway
}

func measure(gateways []keystore.Gateway, change keystore.Change, isFenced func(keystore.Gateway) bool) progress {
	p := progress{all: len(gateways)}
	for _, g := range gateways {
		switch {
		case g.Applied >= change:
			p.applied++
		case isFenced(g):
			p.fenced = append(p.fenced, g)
		default:
			p.laggards = append(p.laggards, g)
		}
	}
	return p
}

func (p progress) confirmed(waited time.Duration) string {
	if p.all == 0 {
		return "no gateway is registered, so no confirmation is needed"
	}
	text := fmt.Sprintf("confirmed by %d of %d gateways in %s", p.applied, p.all, span(waited))
	for _, g := range p.fenced {
		text += fmt.Sprintf("\n  %s is fenced: it refuses every call until it has caught up, because it was silent for longer than its maximum age",
			gatewayName(g))
	}
	return text
}

func (p progress) unconfirmed(waited time.Duration, laggard string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "done, but confirmed by only %d of %d gateways after %s:", p.applied+len(p.fenced), p.all, span(waited))
	for _, g := range p.laggards {
		state := "last seen " + age(g) + " ago"
		switch {
		case g.Replaced:
			state = "replaced by another process with its ID but not known to have ended, " + state
		case g.Age > keystore.SilentAfter.Milliseconds():
			state = "silent for " + age(g)
		case g.Applied == 0:
			state = "still starting"
		}
		fmt.Fprintf(&text, "\n  %s, %s, %s", gatewayName(g), state, laggard)
	}
	text.WriteString("\n" + p.advice())
	return text.String()
}

// hopeless says in one line which gateways are not waited for.
func (p progress) hopeless(laggard string) string {
	var names []string
	for _, g := range p.laggards {
		names = append(names, gatewayName(g)+", silent for "+age(g))
	}
	return fmt.Sprintf("done, and confirmed by %d of %d gateways. Not waited for: %s; %s. %s", p.applied+len(p.fenced), p.all,
		strings.Join(names, "; "), laggard, p.advice())
}

// waiting names the gateways that are waited for.
func (p progress) waiting(wait time.Duration) string {
	var names []string
	for _, g := range p.laggards {
		names = append(names, gatewayName(g)+", last seen "+age(g)+" ago")
	}
	return fmt.Sprintf("waiting up to %s for %s", span(wait), strings.Join(names, "; "))
}

// advice says what to do about the laggards.
func (p progress) advice() string {
	longest := time.Duration(0)
	for _, g := range p.laggards {
		// Never advise to forget a gateway that was seen a moment ago: it runs, and changes would no longer wait for it.
		if g.Age <= keystore.SilentAfter.Milliseconds() {
			continue
		}
		if g.MaxAge == 0 {
			return "If a silent gateway has ended and will not come back: keyadmin gateway forget " + shellWord(printable(g.ID))
		}
		longest = max(longest, g.FenceAfter())
	}
	if longest > 0 {
		return "A silent gateway refuses every call once its maximum age has passed: repeat the command with --wait " +
			(longest + time.Second).Round(time.Second).String() + " to see the change confirmed."
	}
	return "Gateways seen recently are probably still catching up; check the LAG column of `keyadmin gateway list`."
}

// gatewayName is a gateway's ID and host.
func gatewayName(g keystore.Gateway) string {
	host, _, err := net.SplitHostPort(g.AdminAddress)
	if err != nil {
		host = g.AdminAddress
	}
	if host == "" {
		return printable(g.ID)
	}
	return printable(fmt.Sprintf("%s (%s)", g.ID, host))
}

func age(g keystore.Gateway) string { return span(time.Duration(max(g.Age, 0)) * time.Millisecond) }

// errDeclined is returned when the operator does not confirm.
var errDeclined = errors.New("not confirmed; nothing was changed")
