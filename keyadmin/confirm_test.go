package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// looks is a registry that returns the next of its lists at each read, and the last list at all reads after that. A nil list
// is a database that does not answer.
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

// confirming waits for a change while the gateways look as given, by a clock that only the waiting moves.
func confirming(t *testing.T, l looks, terminal bool, c confirmation) (code exitCode, said string, waited time.Duration) {
	t.Helper()
	now := time.UnixMilli(0)
	var stdout, stderr bytes.Buffer
	a := &app{env: map[string]string{"NO_COLOR": "1"}, stdio: stdio{
		Size: func() (width, height int) { return 0, 0 },
		Out:  &stdout, Err: &stderr, ErrTerminal: terminal, Clock: func() time.Time { return now },
		Sleep: func(_ context.Context, d time.Duration) error {
			now = now.Add(d)
			return nil
		},
	}}
	code = a.report(a.confirmBy(t.Context(), &l, c))
	if stdout.Len() != 0 {
		t.Errorf("standard output: %s", stdout.String())
	}
	return code, strings.TrimSuffix(stderr.String(), "\n"), now.Sub(time.UnixMilli(0))
}

func TestConfirm(t *testing.T) {
	const change = 7
	at := func(id string, applied keystore.Change, age int64) keystore.Gateway {
		return keystore.Gateway{ID: id, AdminAddress: "10.0.0." + id[3:] + ":9090", Applied: applied, Age: age}
	}
	fencing := func(g keystore.Gateway, maxAge int64) keystore.Gateway {
		g.MaxAge = maxAge
		return g
	}
	replaced := func(g keystore.Gateway) keystore.Gateway {
		g.Incarnation, g.Replaced = "before", true
		return g
	}
	type list = []keystore.Gateway
	const laggard = "may still accept this key"
	const forget = "\nIf a silent gateway has ended and will not come back: keyadmin gateway forget "
	const moment = "\nGateways seen recently are probably still catching up; check the LAG column of `keyadmin gateway list`."
	const longer = "\nA silent gateway refuses every call once its maximum age has passed: repeat the command with --wait 12s to see the change confirmed."
	for _, c := range []struct {
		name  string
		looks looks
		wait  time.Duration
		code  exitCode
		want  string
	}{
		{"no gateway", looks{list{}}, 0, exitDone, "no gateway is registered, so no confirmation is needed"},
		{
			"all at once",
			looks{list{at("gw-1", 7, 1), at("gw-2", 9, 1), at("gw-3", 7, 1)}},
			0, exitDone, "confirmed by 3 of 3 gateways in 0 ms",
		},
		{
			"one after the other",
			looks{list{at("gw-1", 6, 1), at("gw-2", 6, 1)}, list{at("gw-1", 7, 1), at("gw-2", 6, 1)}, list{at("gw-1", 7, 1), at("gw-2", 7, 1)}},
			5 * time.Second, exitDone, "confirmed by 2 of 2 gateways in 6 ms",
		},
		{
			"one is stopped",
			looks{list{at("gw-1", 7, 1), at("gw-2", 6, 43_000), at("gw-3", 7, 1)}},
			5 * time.Second, exitUnconfirmed,
			"done, but confirmed by only 2 of 3 gateways after 5 s:\n  gw-2 (10.0.0.2), silent for 43 s, " + laggard + forget + "gw-2",
		},
		{
			"one is stopped and one is late",
			looks{list{at("gw-1", 6, 87), at("gw-2", 6, 43_000)}},
			0, exitUnconfirmed,
			"done, but confirmed by only 0 of 2 gateways after 0 ms:\n  gw-1 (10.0.0.1), last seen 87 ms ago, " + laggard +
				"\n  gw-2 (10.0.0.2), silent for 43 s, " + laggard + forget + "gw-2",
		},
		{
			"one that is silent has applied it",
			looks{list{at("gw-1", 7, 43_000)}},
			5 * time.Second, exitDone, "confirmed by 1 of 1 gateways in 0 ms",
		},
		{
			"one begins meanwhile",
			looks{list{at("gw-1", 6, 1)}, list{at("gw-1", 7, 1), at("gw-2", 0, 1)}},
			100 * time.Millisecond, exitUnconfirmed,
			"done, but confirmed by only 1 of 2 gateways after 100 ms:\n  gw-2 (10.0.0.2), still starting, " + laggard + moment,
		},
		{
			"one signs off meanwhile",
			looks{list{at("gw-1", 7, 1), at("gw-2", 6, 1)}, list{at("gw-1", 7, 1)}},
			5 * time.Second, exitDone, "confirmed by 1 of 1 gateways in 2 ms",
		},
		{
			"one has a maximum age",
			looks{list{fencing(at("gw-1", 6, 180_000), 10_000)}},
			11010 * time.Millisecond, exitUnconfirmed,
			"done, but confirmed by only 0 of 1 gateways after 11 s:\n  gw-1 (10.0.0.1), silent for 3 min, " + laggard + longer,
		},
		{
			"one is silent for longer than its maximum age while keyadmin watches",
			looks{list{at("gw-1", 7, 1), fencing(at("gw-2", 6, 1), 10_000)}},
			20 * time.Second, exitDone,
			"confirmed by 1 of 2 gateways in 11 s\n  gw-2 (10.0.0.2) is fenced: it refuses every call until it has caught up, because it was silent for longer than its maximum age",
		},
		{
			"one is fenced and one is silent",
			looks{list{at("gw-1", 6, 180_000), fencing(at("gw-2", 6, 11_001), 10_000)}},
			12 * time.Second, exitUnconfirmed,
			"done, but confirmed by only 1 of 2 gateways after 12 s:\n  gw-1 (10.0.0.1), silent for 3 min, " + laggard + forget + "gw-1",
		},
		{
			"one was replaced",
			looks{list{replaced(at("gw-1", 6, 60_000)), at("gw-1", 7, 1)}},
			0, exitUnconfirmed,
			"done, but confirmed by only 1 of 2 gateways after 0 ms:\n  gw-1 (10.0.0.1), replaced by another process with its ID but not known to " +
				"have ended, last seen 60 s ago, " + laggard + forget + "gw-1",
		},
		{
			"the database fails for a moment",
			looks{nil, nil, list{at("gw-1", 7, 1)}},
			5 * time.Second, exitDone, "confirmed by 1 of 1 gateways in 6 ms",
		},
		{
			"the database is gone",
			looks{list{at("gw-1", 6, 1)}, nil},
			time.Second, exitUnconfirmed,
			"done, but not confirmed: the gateways' progress cannot be read: list gateways: database unavailable",
		},
		{
			"one without an address",
			looks{list{{ID: "gw-1", Applied: 6, Age: 1000}}},
			0, exitUnconfirmed,
			"done, but confirmed by only 0 of 1 gateways after 0 ms:\n  gw-1, last seen 1 s ago, " + laggard + moment,
		},
		{
			"hostile names",
			looks{list{{ID: "gw\x1b[2J", AdminAddress: "\x07", Age: 4000}}},
			0, exitUnconfirmed,
			"done, but confirmed by only 0 of 1 gateways after 0 ms:\n  gw?[2J (?), silent for 4 s, " + laggard + forget + "'gw?[2J'",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, got, waited := confirming(t, c.looks, false, confirmation{change: change, wait: patience{Given: true, Max: c.wait}, laggard: laggard})
			if code != c.code || got != c.want {
				t.Errorf("exit %d, want %d\n got: %s\nwant: %s", code, c.code, got, c.want)
			}
			if waited > c.wait {
				t.Errorf("waited %v of %v", waited, c.wait)
			}
		})
	}
}

// Without --wait, commands wait 5 s, but only for a heartbeat if only gateways are missing that have been silent for long.
func TestSilentGatewaysAreNotWaitedFor(t *testing.T) {
	silent := func(id string, age, maxAge int64) keystore.Gateway {
		return keystore.Gateway{ID: id, AdminAddress: "10.0.0.1:9090", Applied: 1, Age: age, MaxAge: maxAge}
	}
	live := keystore.Gateway{ID: "gw-9", Applied: 2, Age: 1}
	const forget = " If a silent gateway has ended and will not come back: keyadmin gateway forget gw-1"
	for _, c := range []struct {
		looks  looks
		waited time.Duration
		want   string
	}{
		{
			looks{{silent("gw-1", 43_000, 0), live}},
			1512 * time.Millisecond,
			"done, and confirmed by 1 of 2 gateways. Not waited for: gw-1 (10.0.0.1), silent for 43 s; may still accept this key." + forget,
		},
		{
			looks{{silent("gw-1", 43_000, 0), silent("gw-2", 180_000, 60_000), live}},
			1512 * time.Millisecond,
			"done, and confirmed by 1 of 3 gateways. Not waited for: gw-1 (10.0.0.1), silent for 43 s; gw-2 (10.0.0.1), silent for 3 min; " +
				"may still accept this key." + forget,
		},
		{
			looks{{silent("gw-1", 43_000, 60_000)}},
			1512 * time.Millisecond,
			"done, and confirmed by 0 of 1 gateways. Not waited for: gw-1 (10.0.0.1), silent for 43 s; may still accept this key. A silent gateway " +
				"refuses every call once its maximum age has passed: repeat the command with --wait 1m2s to see the change confirmed.",
		},
		{ // the live one is waited for
			looks{{silent("gw-1", 43_000, 0), silent("gw-9", 1, 0)}, {silent("gw-1", 43_000, 0), live}},
			1512 * time.Millisecond,
			"done, and confirmed by 1 of 2 gateways. Not waited for: gw-1 (10.0.0.1), silent for 43 s; may still accept this key." + forget,
		},
		{
			looks{{silent("gw-1", 9_000, 0)}},
			5 * time.Second,
			"done, but confirmed by only 0 of 1 gateways after 5 s:\n  gw-1 (10.0.0.1), silent for 9 s, may still accept this key\n" + forget[1:],
		},
		{ // the database was away for 43 s
			looks{{silent("gw-1", 43_000, 0), silent("gw-9", 43_000, 0)}, {silent("gw-1", 43_000, 0), live}, {live, live}},
			6 * time.Millisecond,
			"confirmed by 2 of 2 gateways in 6 ms",
		},
		{ // it is fenced within the 5 s
			looks{{silent("gw-1", 43_000, 2_000)}},
			3012 * time.Millisecond,
			"confirmed by 0 of 1 gateways in 3 s\n  gw-1 (10.0.0.1) is fenced: it refuses every call until it has caught up, because it was silent " +
				"for longer than its maximum age",
		},
	} {
		code, got, waited := confirming(t, c.looks, false, confirmation{change: 2, laggard: "may still accept this key"})
		if got != c.want || (code == exitUnconfirmed) != strings.HasPrefix(c.want, "done") {
			t.Errorf("exit %d\n got: %s\nwant: %s", code, got, c.want)
		}
		if waited != c.waited {
			t.Errorf("waited %v, want %v: %s", waited, c.waited, c.want)
		}
	}
}

// After an interrupt, keyadmin still names the gateways that may not have applied the change.
func TestInterruptedConfirm(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stderr bytes.Buffer
	a := &app{stdio: stdio{Err: &stderr, Clock: time.Now, Sleep: func(ctx context.Context, d time.Duration) error {
		cancel()
		return operate.Sleep(ctx, time.Hour)
	}}}
	behind := looks{{{ID: "gw-1", AdminAddress: "10.0.0.1:9090", Applied: 1}}}
	code := a.report(a.confirmBy(ctx, &behind, confirmation{change: 2, wait: patience{Given: true, Max: time.Hour}, laggard: "may still accept this key"}))
	if code != exitUnconfirmed || !strings.Contains(stderr.String(), "gw-1 (10.0.0.1), last seen 0 ms ago, may still accept this key") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
}

// After a second, keyadmin tells a person once what it waits for.
func TestConfirmSaysWhatItWaitsFor(t *testing.T) {
	behind := looks{{{ID: "gw-1", AdminAddress: "10.0.0.1:9090", Applied: 1, Age: 43_000}}}
	for terminal, want := range map[bool]int{false: 0, true: 1} {
		_, said, _ := confirming(t, behind, terminal, confirmation{change: 2, wait: patience{Given: true, Max: 5 * time.Second}, laggard: "may still accept this key"})
		if n := strings.Count(said, "waiting up to 5 s for gw-1 (10.0.0.1), last seen 43 s ago\n"); n != want {
			t.Errorf("terminal %t: said %d times, want %d:\n%s", terminal, n, want, said)
		}
	}
}
