package ban_test

import (
	"strings"
	"testing"
	"time"

	"petgate/shared/core/ban"
	"petgate/shared/core/instant"
	"petgate/shared/testkit/must"
)

const (
	second = instant.Millis(1000)
	minute = 60 * second
	noon   = instant.Millis(1_800_000_000_000)
)

// limit is the minute's limit of these tests. So a ban takes as many shared strikes as own ones.
const limit = 1

func TestStrikes(t *testing.T) {
	type step struct {
		on           string         // the connection; "x closes" ends it, "x served" admits a request
		at, promised instant.Millis // after noon
		strike       bool
	}
	f := func(name string, steps ...step) {
		t.Helper()
		var rec ban.Record
		var callers ban.Callers
		promises := map[string]*ban.Promise{}
		left := ban.Product.After
		for i, s := range steps {
			on, event, _ := strings.Cut(s.on, " ")
			if promises[on] == nil {
				promises[on] = &ban.Promise{}
			}
			switch event {
			case "closes":
				callers.Leave(*promises[on])
				continue
			case "served":
				ban.Product.Served(&callers, promises[on], noon+s.at)
				continue
			}
			got := ban.Product.Refused(&rec, &callers, promises[on], limit, noon+s.at, noon+s.promised)
			if s.strike {
				left--
			}
			if got.StrikesUntilBan != left || got.BannedUntil != 0 {
				t.Errorf("%s: refusal %d: %+v, want strike %t and %d left", name, i, got, s.strike, left)
			}
		}
	}
	f("the first refusal is none", step{"a", 0, minute, false})
	f("in flight", step{"a", 0, minute, false}, step{"a", 0, minute, false}, step{"a", 999, minute, false})
	f("a second after the first", step{"a", 0, minute, false}, step{"a", 1000, minute, true},
		step{"a", 1001, minute, true})
	f("at the promised instant", step{"a", 0, minute, false}, step{"a", minute, 2 * minute, false})
	f("a millisecond before it", step{"a", 0, minute, false}, step{"a", minute - 1, minute, true})
	f("nothing promised", step{"a", 0, 0, false}, step{"a", 5000, 5000, false}, step{"a", 10_000, 10_000, false})
	f("at the promised instant, when another has taken the excuse", step{"a", 0, 5000, false},
		step{"b", 5000, minute, false}, step{"a", 5000, minute, false})
	f("a promise excuses once", step{"a", 0, 5000, false},
		step{"a", 5000, minute, false}, step{"a", 5999, minute, false}, step{"a", 6000, minute, true})
	f("a clock that steps back", step{"a", 0, minute, false}, step{"a", -5000, minute, false},
		step{"a", 2000, minute, true})

	f("another connection was promised nothing", step{"a", 0, minute, false}, step{"b", 2000, minute, false},
		step{"c", 4000, minute, false})
	f("a new connection after one that has closed", step{"a", 0, minute, false}, step{"a closes", 0, 0, false},
		step{"b", 1000, minute, true})
	f("it is still the same caller", step{"a", 0, minute, false}, step{"a closes", 0, 0, false},
		step{"b", 1000, minute, true}, step{"b", 1001, minute, true}, step{"b closes", 0, 0, false},
		step{"c", 1002, minute, true})
	f("one new connection for each that has closed", step{"a", 0, minute, false}, step{"a closes", 0, 0, false},
		step{"b", 1000, minute, true}, step{"c", 2000, minute, false})
	f("the first 429 of two that have closed counts", step{"a", 0, minute, false}, step{"b", 5000, minute, false},
		step{"b closes", 0, 0, false}, step{"a closes", 0, 0, false}, step{"c", 5500, minute, true})
	f("the latest promise of two that have closed counts", step{"a", 0, minute, false}, step{"b", 0, 5000, false},
		step{"a closes", 0, 0, false}, step{"b closes", 0, 0, false}, step{"x", 0, 5000, false},
		step{"x", 5000, minute, false}, step{"x", 5100, minute, false}, step{"x", 5200, minute, false},
		step{"c", 8000, minute, true})
	f("new connections in the first second",
		step{"a", 0, minute, false}, step{"a closes", 0, 0, false}, step{"b", 999, minute, false})
	f("a new connection at the promised instant", step{"a", 0, minute, false}, step{"a closes", 0, 0, false},
		step{"b", minute, 2 * minute, false})
	f("it closes after the promised instant", step{"a", 0, 5000, false}, step{"d", 0, minute, false},
		step{"b", 5000, minute, false}, step{"d closes", 0, 0, false}, step{"a closes", 0, 0, false},
		step{"c", 8000, minute, false}, step{"e", 9000, minute, false})
	f("two that come back when told, on the other's connection",
		step{"a", 0, 5000, false}, step{"b", 500, 9000, false},
		step{"b", 5000, minute, false}, step{"a", 9000, 2 * minute, false}, step{"a", 11_000, 2 * minute, true})
	f("the shorter of two promises is due first", step{"a", 0, minute, false}, step{"b", 0, 5000, false},
		step{"a", 5000, minute, false})
	f("an excuse lapses", step{"a", 0, 5000, false}, step{"b", 0, 5000, false}, step{"a", 6000, 10 * minute, false},
		step{"a", minute * 2, 10 * minute, true})
	f("an excuse of the minute before is used once", step{"a", 0, 5000, false}, step{"b", 0, 5000, false},
		step{"a", 6000, 10 * minute, false}, step{"a", minute*2 - 1, 10 * minute, false},
		step{"a", minute*2 - 1, 10 * minute, true})
	f("a promise ends when a request is admitted", step{"a", 0, 10 * minute, false}, step{"a served", 5000, 0, false},
		step{"a", 6000, minute, false}, step{"a", 6500, minute, false})
	f("a thread whose response took long", step{"a", 0, minute, false}, step{"b served", 5000, 0, false},
		step{"a", 5001, minute, false}, step{"a", 5002, minute, true})
	f("a response after the promised instant excuses nothing", step{"a", 0, 5000, false},
		step{"a served", 6000, 0, false}, step{"a served", 6001, 0, false}, step{"a", 7000, minute, false},
		step{"a", 8000, minute, true})
}

// Own strikes weigh more than shared ones if the minute's limit is higher than the number of
// strikes that ban.
func TestSharedStrikesBanLater(t *testing.T) {
	f := func(limit int64, closes bool, want int) {
		t.Helper()
		var rec ban.Record
		var callers ban.Callers
		on, left := &ban.Promise{}, ban.Product.StrikesUntilBan(rec, limit, noon)
		for n := 0; ; n++ {
			out := ban.Product.Refused(&rec, &callers, on, limit, noon+second*instant.Millis(min(n, 1)), noon+minute)
			if out.BannedUntil != 0 {
				if n != want || out.StrikesUntilBan != 0 {
					t.Errorf("limit %d, closes %t: %+v after %d strikes, want a ban after %d", limit, closes, out, n,
						want)
				}
				return
			}
			own := (int64(30-n)*max(limit, 30) + 29) / 30 // of shared ones, rounded up
			is := ban.Product.StrikesUntilBan(rec, limit, noon+second)
			if out.StrikesUntilBan != is || is > left || !closes && is != int(own) {
				t.Fatalf("limit %d: %+v after %d were left", limit, out, left)
			}
			left = is
			if closes {
				callers.Leave(*on)
				on = &ban.Promise{}
			}
		}
	}
	for limit, shared := range map[int64]int{1: 30, 30: 30, 31: 31, 100: 100, 1000: 1000} {
		f(limit, false, 30)
		f(limit, true, shared)
	}
}

// A ban's own Retry-After replaces what was promised before: who waits for it is not struck.
func TestBanEndsPromises(t *testing.T) {
	rule := ban.Product
	rule.After = 1
	var rec ban.Record
	var callers ban.Callers
	var on, other, late ban.Promise
	rule.Refused(&rec, &callers, &on, limit, noon, noon+100*minute)
	rule.Refused(&rec, &callers, &other, limit, noon, noon+100*minute)
	callers.Leave(other)
	out := rule.Refused(&rec, &callers, &on, limit, noon+second, noon+100*minute)
	must.Equal(t, out.BannedUntil != 0, true, "whether the key is banned")
	rule.Refused(&rec, &callers, &late, limit, noon+second, noon+100*minute) // it was under way
	for _, p := range []*ban.Promise{&late, &on, {}} {
		if out := rule.Refused(&rec, &callers, p, limit, out.BannedUntil, noon+100*minute); out.BannedUntil != 0 {
			t.Error("banned again for a promise before the ban")
		}
	}
}

func TestBanSchedule(t *testing.T) {
	rule := ban.Rule{
		After: 3, Within: time.Minute, For: time.Minute, Max: 5 * time.Minute, Memory: time.Hour, Grace: time.Second,
	}
	// offend ignores a promise of an hour until it is banned.
	offend := func(t *testing.T, rec *ban.Record, now instant.Millis) (banned time.Duration, end instant.Millis) {
		t.Helper()
		var callers ban.Callers
		var on ban.Promise
		for strikes := 0; ; strikes++ {
			at := now + instant.Millis(strikes)*second
			out := rule.Refused(rec, &callers, &on, limit, at, at+60*minute)
			if want := rule.After - strikes; out.StrikesUntilBan != want {
				t.Fatalf("after %d strikes: %+v, want %d left", strikes, out, want)
			}
			if out.BannedUntil != 0 {
				return out.BannedUntil.Sub(at), out.BannedUntil
			}
		}
	}
	var rec ban.Record
	now := noon
	for i, minutes := range []time.Duration{1, 2, 4, 5, 5} {
		want := minutes * time.Minute
		got, end := offend(t, &rec, now)
		must.Equal(t, got, want, "ban %d", i+1)
		now = end
	}
	// The last ban began 5 minutes ago, and the next takes 3 s.
	for early, want := range []time.Duration{time.Minute, 5 * time.Minute} {
		again := rec
		if got, _ := offend(t, &again, now+55*minute-3*second-instant.Millis(early)); got != want {
			t.Errorf("an hour after the last ban, %d ms early: %v, want %v", early, got, want)
		}
	}
}

func TestOff(t *testing.T) {
	rule := ban.Product
	rule.After = 0
	var rec ban.Record
	for i := range instant.Millis(1000) {
		out := rule.Refused(&rec, &ban.Callers{}, &ban.Promise{}, limit, noon+i*second, noon+minute*60)
		if out != (ban.Outcome{}) {
			t.Fatalf("refusal %d: %+v", i, out)
		}
	}
}

// Strikes older than Within never count: a steady rate just below After in Within causes no ban.
func TestSlowOffenderIsNotBanned(t *testing.T) {
	var rec ban.Record
	var callers ban.Callers
	var on ban.Promise
	least := ban.Product.After
	for at := noon; at < noon+60*minute; at += minute/29 + 100 {
		least = min(least, ban.Product.Refused(&rec, &callers, &on, limit, at, noon+120*minute).StrikesUntilBan)
	}
	if least > 4 || least == 0 {
		t.Errorf("%d strikes were left", least)
	}
}

func TestIdle(t *testing.T) {
	var rec ban.Record
	var callers ban.Callers
	var on ban.Promise
	ban.Product.Refused(&rec, &callers, &on, limit, noon, noon+10*minute)
	ban.Product.Refused(&rec, &callers, &ban.Promise{}, limit, noon, noon+second) // a shorter one is due before
	callers.Leave(on)
	for at, want := range map[instant.Millis]struct{ key, callers bool }{
		noon + minute: {false, false}, noon + minute + 1: {true, false}, noon + 12*minute: {true, false},
		noon + 12*minute + 1: {true, true},
	} {
		if key, all := ban.Product.Idle(&rec, at), ban.Product.Forgets(&callers, at); key != want.key ||
			all != want.callers {
			t.Errorf("%d ms later: %t %t, want %t", at-noon, key, all, want)
		}
	}
	for _, began := range []instant.Millis{noon, noon - 1} { // an earlier one changes nothing
		ban.Product.Banned(&rec, began, began+minute)
		if ban.Product.Idle(&rec, noon+24*60*minute) || !ban.Product.Idle(&rec, noon+24*60*minute+1) {
			t.Error("a ban is not remembered for 24 hours")
		}
	}
}
