package ban_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"petgate/shared/core/ban"

	"petgate/shared/core/instant"
)

const (
	second = instant.Millis(1000)
	minute = 60 * second
	noon   = instant.Millis(1_800_000_000_000)
)

func TestStrikes(t *testing.T) {
	type refusal struct {
		at, promised instant.Millis // after noon
		strike       bool
	}
	f := func(name string, refusals ...refusal) {
		t.Helper()
		var rec ban.Record
		left := ban.Product.After
		for i, r := range refusals {
			got := ban.Product.Refused(&rec, noon+r.at, noon+r.promised)
			if r.strike {
				left--
			}
			if got.IsStrike() != r.strike || got.StrikesUntilBan != left || got.BannedUntil != 0 {
				t.Errorf("%s: refusal %d: %+v, want strike %t and %d left", name, i, got, r.strike, left)
			}
		}
	}
	f("the first refusal is none", refusal{0, minute, false})
	f("in flight", refusal{0, minute, false}, refusal{0, minute, false}, refusal{999, minute, false})
	f("a second after the first", refusal{0, minute, false}, refusal{1000, minute, true}, refusal{1001, minute, true})
	f("at the promised instant", refusal{0, minute, false}, refusal{minute, 2 * minute, false})
	f("a millisecond before it", refusal{0, minute, false}, refusal{minute - 1, minute, true})
	f("nothing promised", refusal{0, 0, false}, refusal{5000, 5000, false}, refusal{10_000, 10_000, false})
	f("a promise excuses once",
		refusal{0, 5000, false}, refusal{5000, minute, false}, refusal{6000, minute, true})
	f("two workers, promised a little apart: each comes back when told, while the other's promise holds",
		refusal{0, 5000, false}, refusal{500, 9000, false},
		refusal{5000, minute, false}, refusal{9000, minute, false}, refusal{9100, minute, true})
	f("an excuse lapses",
		refusal{0, 5000, false}, refusal{0, 5000, false}, refusal{6000, 10 * minute, false}, refusal{minute * 4, 10 * minute, true})
	f("a clock that steps back", refusal{0, minute, false}, refusal{-5000, minute, false}, refusal{2000, minute, true})
}

func TestBanSchedule(t *testing.T) {
	rule := ban.Rule{
		After: 3, Within: time.Minute, For: time.Minute, Max: 5 * time.Minute, Memory: time.Hour, Grace: time.Second,
	}
	// offend ignores a promise of an hour until it is banned.
	offend := func(t *testing.T, rec *ban.Record, now instant.Millis) (strikes int, banned time.Duration, end instant.Millis) {
		t.Helper()
		for i := instant.Millis(0); ; i++ {
			at := now + i*second
			out := rule.Refused(rec, at, at+60*minute)
			if out.IsStrike() {
				strikes++
			}
			if out.BannedUntil != 0 {
				return strikes, time.Duration(out.BannedUntil-at) * time.Millisecond, out.BannedUntil
			}
			if want := rule.After - strikes; out.StrikesUntilBan != want {
				t.Fatalf("after %d strikes: %+v, want %d left", strikes, out, want)
			}
		}
	}
	var rec ban.Record
	now := noon
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		strikes, got, end := offend(t, &rec, now)
		if strikes != rule.After || got != want {
			t.Errorf("ban %d: %v after %d strikes, want %v after %d", i+1, got, strikes, want, rule.After)
		}
		now = end
	}
	if _, got, _ := offend(t, &rec, now+61*minute); got != time.Minute {
		t.Errorf("long after the last ban: %v, want the first length again", got)
	}

	rec = ban.Record{}
	rule.Banned(&rec, noon, noon+2*minute)
	if _, got, _ := offend(t, &rec, noon+3*minute); got != 4*time.Minute {
		t.Errorf("after another gateway's ban of 2 min: %v, want 4 min", got)
	}
}

func TestOff(t *testing.T) {
	rule := ban.Product
	rule.After = 0
	var rec ban.Record
	for i := range instant.Millis(1000) {
		if out := rule.Refused(&rec, noon+i*second, noon+minute*60); out != (ban.Outcome{}) {
			t.Fatalf("refusal %d: %+v", i, out)
		}
	}
}

// Strikes older than Within never count: a steady rate just below After in Within causes no ban.
func TestSlowOffenderIsNotBanned(t *testing.T) {
	var rec ban.Record
	strikes := 0
	for at := noon; at < noon+60*minute; at += minute/29 + 100 {
		out := ban.Product.Refused(&rec, at, noon+120*minute)
		if out.BannedUntil != 0 {
			t.Fatalf("banned after %d strikes", strikes)
		}
		if out.IsStrike() {
			strikes++
		}
	}
	if strikes < 1500 {
		t.Errorf("%d strikes, want all but the first", strikes)
	}
}

func TestIdle(t *testing.T) {
	var rec ban.Record
	ban.Product.Refused(&rec, noon, noon+10*minute)
	for at, want := range map[instant.Millis]bool{noon: false, noon + 9*minute: false, noon + 13*minute: true} {
		if got := ban.Product.Idle(&rec, at); got != want {
			t.Errorf("Idle after %d s is %t", (at-noon)/second, got)
		}
	}
	ban.Product.Banned(&rec, noon, noon+minute)
	if ban.Product.Idle(&rec, noon+20*60*minute) {
		t.Error("a ban of 20 h ago is forgotten")
	}
}

// worker is a client thread. After a refusal it waits for Retry-After.
type worker struct {
	next    instant.Millis // when it calls
	serving bool           // its call has been admitted, and is answered at next
}

// Workers that share a key under a rolling limit and each sleep for Retry-After never get a strike. The number of workers,
// a slow upstream and workers that wake too late make no difference.
func TestWhoWaitsIsNeverStruck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.SampledFrom([]int{1, 2, 7, 200}).Draw(t, "workers")
		limit := rapid.IntRange(1, 300).Draw(t, "limit")
		window := instant.Millis(rapid.IntRange(2, 60).Draw(t, "window")) * second
		answer := rapid.SampledFrom([]instant.Millis{1, 200, 3000, 15_000}).Draw(t, "answer takes")
		late := rapid.Int64Range(0, 2000).Draw(t, "wakes late by")
		random := rapid.Int64Range(0, 1<<40)

		var rec ban.Record
		workers := make([]worker, count)
		for i := range workers {
			workers[i].next = noon + instant.Millis(random.Draw(t, "start"))%second
		}
		var admitted []instant.Millis
		refused := 0
		for range 6 * count * 3 {
			w := &workers[0]
			for i := range workers {
				if cmp.Less(workers[i].next, w.next) {
					w = &workers[i]
				}
			}
			now := w.next
			if w.serving {
				ban.Product.Served(&rec, now)
				w.serving = false
				continue
			}
			admitted = slices.DeleteFunc(admitted, func(at instant.Millis) bool { return at+window <= now })
			if len(admitted) < limit {
				admitted = append(admitted, now)
				w.next, w.serving = now+answer, true
				continue
			}
			promised := admitted[0] + window
			refused++
			if out := ban.Product.Refused(&rec, now, promised); out.IsStrike() || out.BannedUntil != 0 {
				t.Fatalf("refusal %d of %d workers that wait: %+v", refused, count, out)
			}
			// Retry-After is in whole seconds, rounded up.
			wait := (promised - now + second - 1) / second * second
			w.next = now + wait + instant.Millis(random.Draw(t, "late")%(late+1))
		}
	})
}

// A client that ignores Retry-After is banned at its 30th strike. This takes two seconds plus 32 requests at most.
func TestWhoIgnoresIsBanned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := instant.Millis(rapid.Int64Range(1, 1900).Draw(t, "calls every ms"))
		// Before that, it may have waited for a few promises of different lengths.
		var rec ban.Record
		now := noon
		for range rapid.IntRange(0, 5).Draw(t, "waits") {
			promised := now + instant.Millis(rapid.Int64Range(1, 20).Draw(t, "promise"))*second
			ban.Product.Refused(&rec, now, promised)
			now = promised
		}
		promised := now + 5*minute
		strikes := 0
		for at := now; ; at += every {
			out := ban.Product.Refused(&rec, at, promised)
			if out.IsStrike() {
				strikes++
			}
			if out.BannedUntil == 0 {
				if at > now+2*second+32*every {
					t.Fatalf("not banned after %d ms and %d strikes", at-now, strikes)
				}
				continue
			}
			if strikes != ban.Product.After || out.BannedUntil != at+minute {
				t.Fatalf("banned until %d s after the call, after %d strikes", (out.BannedUntil-at)/second, strikes)
			}
			return
		}
	})
}

func BenchmarkRefused(b *testing.B) {
	var rec ban.Record
	b.ReportAllocs()
	for i := range b.N {
		ban.Product.Refused(&rec, noon+instant.Millis(i), noon+minute)
	}
}
