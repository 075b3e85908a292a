package operate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"petgate/shared/keystore"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("sleep = %v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begin) != time.Second {
			t.Errorf("interrupted sleep = %v after %v", err, time.Since(begin))
		}
	})
}

// All laggards refuse every call only when the one with the longest maximum age does.
func TestAdviceWaitsForTheLongestAge(t *testing.T) {
	t.Parallel()
	p := Progress{Laggards: []keystore.Gateway{{Age: 5000, MaxAge: 60_000}, {Age: 5000, MaxAge: 10_000}}}
	if got := p.Advice(func(d time.Duration) string { return " in " + d.String() }, ""); !strings.HasSuffix(
		got, " in "+p.Laggards[0].FenceAfter().String(),
	) {
		t.Error(got)
	}
}

// looks is a registry that returns the next of its lists at each read, and the last list at all
// reads after that. A nil list is a database that does not answer.
type looks [][]keystore.Gateway

func (l *looks) Gateways(context.Context) ([]keystore.Gateway, error) {
	list := (*l)[0]
	if len(*l) > 1 {
		*l = (*l)[1:]
	}
	if list == nil {
		return nil, errors.New("list gateways: database unavailable")
	}
	return list, nil
}

// waited waits for change 7 while the gateways look as given, by a clock that only the waiting
// moves, and returns what is said.
func waited(t *testing.T, l looks, wait time.Duration) (said string, took time.Duration) {
	t.Helper()
	now := time.UnixMilli(0)
	p := Wait(
		t.Context(),
		&l,
		7,
		wait,
		func() time.Time { return now },
		func(_ context.Context, d time.Duration) error {
			now = now.Add(d)
			return nil
		},
	)
	said = p.Text("may still accept this key")
	if !p.IsConfirmed() && p.Err == nil {
		said += "\n" + p.Advice(func(fenced time.Duration) string { return ", in " + Span(fenced) + "." }, "; look.")
	}
	return said, now.Sub(time.UnixMilli(0))
}

func at(id string, applied keystore.Change, age int64) keystore.Gateway {
	return keystore.Gateway{ID: id, AdminAddress: "10.0.0." + id[3:] + ":9090", Applied: applied, Age: age}
}

func fencing(g keystore.Gateway, maxAge int64) keystore.Gateway {
	g.MaxAge = maxAge
	return g
}

func TestWait(t *testing.T) {
	t.Parallel()
	replaced := func(g keystore.Gateway) keystore.Gateway {
		g.Incarnation, g.Replaced = "before", true
		return g
	}
	type list = []keystore.Gateway
	const laggard = "may still accept this key"
	const forget = "\nIf a silent gateway has ended and will not come back: keyadmin gateway forget "
	const moment = "\nGateways seen recently are probably still catching up; look."
	const longer = "\nA silent gateway refuses every call once its maximum age has passed, in 11 s."
	for _, c := range []struct {
		name  string
		looks looks
		wait  time.Duration
		want  string
	}{
		{"no gateway", looks{list{}}, 0, "no gateway is registered, so no confirmation is needed"},
		{
			"all at once",
			looks{list{at("gw-1", 7, 1), at("gw-2", 9, 1), at("gw-3", 7, 1)}},
			0, "confirmed by 3 of 3 gateways in 0 ms",
		},
		{
			"one after the other",
			looks{
				list{at("gw-1", 6, 1), at("gw-2", 6, 1)},
				list{at("gw-1", 7, 1), at("gw-2", 6, 1)},
				list{at("gw-1", 7, 1), at("gw-2", 7, 1)},
			},
			5 * time.Second, "confirmed by 2 of 2 gateways in 6 ms",
		},
		{
			"one is stopped and one is late",
			looks{list{at("gw-1", 6, 87), at("gw-2", 6, 43_000), at("gw-3", 7, 1)}},
			5 * time.Second,
			"done, but confirmed by only 1 of 3 gateways after 5 s:\n  gw-1 (10.0.0.1), last seen 87 ms ago, " + laggard +
				"\n  gw-2 (10.0.0.2), silent for 43 s, " + laggard + forget + "gw-2",
		},
		{
			"one that is silent has applied it",
			looks{list{at("gw-1", 7, 43_000)}},
			5 * time.Second, "confirmed by 1 of 1 gateways in 0 ms",
		},
		{
			"one begins meanwhile",
			looks{list{at("gw-1", 6, 1)}, list{at("gw-1", 7, 1), at("gw-2", 0, keystore.SilentAfter.Milliseconds())}},
			100 * time.Millisecond,
			"done, but confirmed by only 1 of 2 gateways after 100 ms:\n  gw-2 (10.0.0.2), still starting, " + laggard + moment,
		},
		{
			"one signs off meanwhile",
			looks{list{at("gw-1", 7, 1), at("gw-2", 6, 1)}, list{at("gw-1", 7, 1)}},
			5 * time.Second, "confirmed by 1 of 1 gateways in 2 ms",
		},
		{
			"one has a maximum age",
			looks{list{fencing(at("gw-1", 6, 180_000), 10_000)}},
			11010 * time.Millisecond,
			"done, but confirmed by only 0 of 1 gateways after 11 s:\n  gw-1 (10.0.0.1), silent for 3 min, " + laggard + longer,
		},
		{
			"one is silent for longer than its maximum age while keyadmin watches",
			looks{list{at("gw-1", 7, 1), fencing(at("gw-2", 6, 1), 10_000)}},
			20 * time.Second,
			"confirmed by 1 of 2 gateways in 11 s\n  gw-2 (10.0.0.2) is fenced: " +
				"it refuses every call until it has caught up, because it was silent for longer than its maximum age",
		},
		{
			"one is fenced and one is silent",
			looks{list{at("gw-1", 6, 180_000), fencing(at("gw-2", 6, 11_001), 10_000)}},
			12 * time.Second,
			"done, but confirmed by only 1 of 2 gateways after 12 s:\n  gw-1 (10.0.0.1), silent for 3 min, " + laggard + forget + "gw-1",
		},
		{
			"one was replaced",
			looks{list{replaced(at("gw-1", 6, 60_000)), at("gw-1", 7, 1)}},
			0,
			"done, but confirmed by only 1 of 2 gateways after 0 ms:\n" +
				"  gw-1 (10.0.0.1), replaced by another process with its ID but not known to have ended, " +
				"last seen 60 s ago, " + laggard + forget + "gw-1",
		},
		{
			"the database fails for a moment",
			looks{nil, nil, list{at("gw-1", 7, 1)}},
			5 * time.Second, "confirmed by 1 of 1 gateways in 6 ms",
		},
		{
			"the database is gone",
			looks{list{at("gw-1", 6, 1)}, nil},
			time.Second,
			"done, but not confirmed: the gateways' progress cannot be read: list gateways: database unavailable",
		},
		{
			"one without an address",
			looks{list{{ID: "gw-1", Applied: 6, Age: 1000}}},
			0,
			"done, but confirmed by only 0 of 1 gateways after 0 ms:\n  gw-1, last seen 1 s ago, " + laggard + moment,
		},
		{
			"hostile names",
			looks{list{{ID: "gw\x1b[2J", AdminAddress: "\x07", Age: 4000}}},
			0,
			"done, but confirmed by only 0 of 1 gateways after 0 ms:\n  gw?[2J (?), silent for 4 s, " + laggard + forget + "'gw?[2J'",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, took := waited(t, c.looks, c.wait); got != c.want || took > c.wait {
				t.Errorf("waited %v of %v\n got: %s\nwant: %s", took, c.wait, got, c.want)
			}
		})
	}
}
