package quota_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

// oracle is the rule in its simplest form, without regard to cost: it keeps the instant of every
// admission.
type oracle struct {
	rule     quota.Rule
	admitted []admission
}

type admission struct {
	at    instant.Millis
	units int64
}

// used returns the usage at now: admissions whose slice has not been released, those of now's day,
// and those of its month.
func (o *oracle) used(now instant.Millis, starts uint8) (used [3]int64) {
	for _, a := range o.admitted {
		if released := a.at.Truncate(o.rule.Slice).Add(o.rule.Slice + o.rule.Window()); now < released {
			used[quota.Minute] += a.units
		}
		if a.at.Truncate(o.rule.Day) == now.Truncate(o.rule.Day) {
			used[quota.Day] += a.units
		}
		if o.month(a.at, starts) == o.month(now, starts) {
			used[quota.Month] += a.units
		}
	}
	return used
}

// month returns the year and the month in which an instant lies, by a calendar whose days are the
// rule's.
func (o *oracle) month(at instant.Millis, starts uint8) time.Time {
	day := time.Unix(0, 0).UTC().AddDate(0, 0, int(int64(at)/o.rule.Day.Milliseconds()))
	begun := day.AddDate(0, 0, 1-int(starts)) // the calendar month in which its own first day would be
	return time.Date(begun.Year(), begun.Month(), 1, 0, 0, 0, 0, time.UTC)
}

func (o *oracle) take(now int64, d quota.Demand) (granted int64) {
	for range d.Want {
		used := o.used(instant.Millis(now), d.MonthStarts)
		for p, limit := range [...]int64{d.Limits.Minute, d.Limits.Day, d.Limits.Month} {
			if limit != 0 && used[p]+d.Cost > limit {
				return granted
			}
		}
		o.admitted = append(o.admitted, admission{instant.Millis(now), d.Cost})
		granted++
	}
	return granted
}

var rules = []quota.Rule{
	{Slice: time.Second, Slices: 4, Day: time.Minute},
	{Slice: 10 * time.Millisecond, Slices: 1, Day: time.Second},
	{Slice: 100 * time.Millisecond, Slices: 7, Day: time.Second},
	{Slice: 250 * time.Millisecond, Slices: 240, Day: 10 * time.Minute},
	quota.Product,
}

// drawLimits draws limits for one to three policies.
func drawLimits(t *rapid.T) (l plan.Limits) {
	for !l.IsSet() {
		l = plan.Limits{
			Minute: rapid.Int64Range(0, 12).Draw(t, "minute"),
			Day:    rapid.Int64Range(0, 40).Draw(t, "day"),
			Month:  rapid.Int64Range(0, 90).Draw(t, "month"),
		}
	}
	return l
}

// drawPause draws how long a client waits: mostly around slices, sometimes around windows and days.
func drawPause(t *rapid.T, rule quota.Rule) int64 {
	slice, window := rule.Slice.Milliseconds(), rule.Window().Milliseconds()
	return rapid.OneOf(rapid.Int64Range(0, 2*slice), rapid.Int64Range(0, 3*slice), rapid.Just(slice),
		rapid.Int64Range(0, window+2*slice), rapid.Int64Range(0, max(rule.Day.Milliseconds(), 2*window)),
		rapid.Int64Range(0, 16*rule.Day.Milliseconds())).Draw(t, "pause")
}

// The rule grants exactly what the oracle grants, no less and no more, and reports the same usage.
func TestTakeIsTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		o := oracle{rule: rule}
		var rec quota.Record
		limits, now := drawLimits(t), rapid.Int64Range(0, 2e12).Draw(t, "now")
		starts, hasMonth := uint8(rapid.IntRange(1, 28).Draw(t, "month starts")), rapid.Bool().Draw(t, "month")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "plan change") == 0 {
				limits = drawLimits(t)
			}
			if limits.Month = max(limits.Month, 1); !hasMonth { // the month counts from when it is set
				limits.Month, limits.Day = 0, max(limits.Day, 1)
			}
			now += drawPause(t, rule)
			d := quota.Demand{
				Limits: limits, MonthStarts: starts, Want: rapid.Int64Range(0, 6).Draw(t, "want"),
				Cost: rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, 50)).Draw(t, "cost"),
			}
			granted, v := o.take(now, d), rule.Take(&rec, instant.Millis(now), d)
			used := o.used(instant.Millis(now), starts)
			if v.Granted != granted || v.Usages[quota.Minute].Used != used[quota.Minute] ||
				v.Usages[quota.Day].Used != used[quota.Day] ||
				hasMonth && v.Usages[quota.Month].Used != used[quota.Month] {
				t.Fatalf("at %d: %d of %d granted, %+v; the oracle says %d, %d used", now, v.Granted, d.Want, v.Usages,
					granted, used)
			}
		}
	})
}

// A key's own limits and its tenant's admit together what the tighter of the two admits, and both
// records count it.
func TestBothOrNeither(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		keys, tenant := make([]quota.Record, 2), quota.Record{}
		oracles, now := make([]oracle, len(keys)+1), rapid.Int64Range(0, 2e12).Draw(t, "now")
		for i := range oracles {
			oracles[i].rule = rule
		}
		of := &oracles[len(keys)]
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += drawPause(t, rule)
			key := rapid.IntRange(0, len(keys)-1).Draw(t, "key")
			d := quota.Demand{
				Limits:      drawLimits(t),
				MonthStarts: 1,
				Want:        rapid.Int64Range(0, 6).Draw(t, "want"),
				Cost:        rapid.Int64Range(1, 5).Draw(t, "cost"),
			}
			d.Limits.Month = max(1, d.Limits.Month)
			own := d
			own.Limits = plan.Limits{
				Minute: rapid.Int64Range(1, 20).Draw(t, "own minute"),
				Day:    rapid.Int64Range(0, 30).Draw(t, "own day"),
			}
			want := d
			want.Want = 0
			for want.Want < d.Want { // one by one, from both or from neither
				before := [2]int{len(of.admitted), len(oracles[key].admitted)}
				one := d
				one.Want = 1
				oneOwn := own
				oneOwn.Want = 1
				if granted, grantedOwn := of.take(now, one), oracles[key].take(now, oneOwn); granted+grantedOwn < 2 {
					of.admitted, oracles[key].admitted = of.admitted[:before[0]], oracles[key].admitted[:before[1]]
					break
				}
				want.Want++
			}
			ofKey, ofTenant := rule.TakeBoth(&keys[key], &tenant, instant.Millis(now), own, d)
			used, usedOwn := of.used(instant.Millis(now), 1), oracles[key].used(instant.Millis(now), 1)
			if ofKey.Granted != want.Want || ofTenant.Granted != want.Want ||
				ofTenant.Usages[quota.Month].Used != used[quota.Month] ||
				ofTenant.Usages[quota.Minute].Used != used[quota.Minute] ||
				ofKey.Usages[quota.Minute].Used != usedOwn[quota.Minute] ||
				ofKey.Usages[quota.Day].Used != usedOwn[quota.Day] {
				t.Fatalf("at %d: %+v and %+v; the oracle grants %d, %d used, and %d by the key", now, ofKey, ofTenant,
					want.Want, used, usedOwn)
			}
			if joined := ofTenant; want.Want == d.Want-1 {
				if joined.Join(&ofKey); joined.Violated() == quota.None {
					t.Fatalf("at %d: %+v refuses, and no policy does", now, joined)
				}
			}
		}
	})
}

// If the limit never changes, no window of the full length has more admissions than the limit,
// wherever the window begins. Clocks may step back and so lag more and more behind true time: the
// promise is about true time.
func TestNeverMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		limits := drawLimits(t)
		var rec quota.Record
		var admitted []instant.Millis // true instants
		// The start is so late that no lag reaches below zero.
		now, lag := rapid.Int64Range(1e12, 2e12).Draw(t, "now"), int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += drawPause(t, rule)
			if rapid.IntRange(0, 9).Draw(t, "step back") == 0 {
				lag += rapid.Int64Range(1, 20_000).Draw(t, "lag")
			}
			want := rapid.Int64Range(0, 6).Draw(t, "want")
			v := rule.Take(&rec, instant.Millis(now-lag), quota.Demand{Limits: limits, Want: want})
			for range v.Granted {
				admitted = append(admitted, instant.Millis(now))
			}
			in := int64(0)
			for _, at := range admitted {
				if at > instant.Millis(now).Add(-rule.Window()) {
					in++
				}
			}
			if limits.Minute != 0 && in > limits.Minute {
				t.Fatalf("at %d, %d admitted in one window, the limit is %d: %v", now, in, limits.Minute, admitted)
			}
		}
	})
}

// drawRecord draws a record with a history: limits that changed, merged use, pauses.
func drawRecord(t *rapid.T, rule quota.Rule) (rec quota.Record, now int64, limits plan.Limits) {
	now = rapid.Int64Range(1e12, 2e12).Draw(t, "now")
	for range rapid.IntRange(1, 40).Draw(t, "history") {
		now += drawPause(t, rule)
		limits = drawLimits(t)
		d := quota.Demand{Limits: limits, Want: rapid.Int64Range(0, 6).Draw(t, "want")}
		if rapid.IntRange(0, 9).Draw(t, "merge") == 0 {
			d.Unreported.Minute = rapid.Int64Range(0, 20).Draw(t, "spent")
		}
		rule.Take(&rec, instant.Millis(now), d)
	}
	return rec, now, drawLimits(t)
}

// Every instant that a verdict names is true to the millisecond: a client that waits until then
// finds what it was promised, and a client that comes a millisecond earlier does not.
func TestPromisedInstantsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		rec, now, limits := drawRecord(t, rule)
		v := rule.Take(&rec, instant.Millis(now), quota.Demand{Limits: limits})
		form := rule.Append(nil, &rec) // as the decision left it: a month that is newly set counts from then on
		at := func(now, want int64) quota.Verdict {
			again := must.Get[quota.Record](t)(rule.Decode(form))
			return rule.Take(&again, instant.Millis(now), quota.Demand{Limits: limits, Want: want})
		}
		if retry := v.RetryAt(); retry == 0 {
			if at(now, 1).Granted != 1 {
				t.Fatalf("retry at once, but refused: %+v", v)
			}
		} else if retry <= instant.Millis(now) || at(int64(retry-1), 1).Granted != 0 ||
			at(int64(retry), 1).Granted != 1 {
			t.Fatalf("retry at %d is not the first instant that admits one: %+v", retry, v)
		}
		if retry := v.Usages[quota.Minute].RetryAt; retry != 0 {
			if limits.IsSet() &&
				(at(int64(retry-1), 0).Usages[quota.Minute].Remaining != 0 ||
					at(int64(retry), 0).Usages[quota.Minute].Remaining == 0) {
				t.Fatalf("the minute's retry at %d is not the first instant with one remaining: %+v", retry, v)
			}
		}
		if v.Usages[quota.Minute].Used > 0 {
			reset, release := v.Usages[quota.Minute].ResetAt, v.Usages[quota.Minute].ReleaseAt
			if at(int64(reset-1), 0).Usages[quota.Minute].Used == 0 ||
				at(int64(reset), 0).Usages[quota.Minute].Used != 0 {
				t.Fatalf("reset at %d is not when the window is empty: %+v", reset, v)
			}
			if at(int64(release-1), 0).Usages[quota.Minute].Used != v.Usages[quota.Minute].Used ||
				at(int64(release), 0).Usages[quota.Minute].Used >= v.Usages[quota.Minute].Used {
				t.Fatalf("release at %d is not when use shrinks: %+v", release, v)
			}
		}
		midnight := v.Usages[quota.Day].ResetAt
		if at(int64(midnight-1), 0).Usages[quota.Day].Used != v.Usages[quota.Day].Used ||
			at(int64(midnight), 0).Usages[quota.Day].Used != 0 {
			t.Fatalf("the day's reset at %d is not its end: %+v", midnight, v)
		}
		today := quota.Period{Ends: now/rule.Day.Milliseconds() + 1, Used: v.Usages[quota.Day].Used}
		if use := rule.UseOf(&v); use.Day != today {
			t.Fatalf("%+v is not the use of today", use)
		}
	})
}
