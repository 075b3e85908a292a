package quota_test

import (
	"bytes"
	"testing"
	"time"

	"pgregory.net/rapid"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
)

// oracle is the rule in its simplest form, without regard to cost: it keeps the instant of every admission.
type oracle struct {
	rule     quota.Rule
	admitted []instant.Millis
}

// used returns the usage at now: admissions whose slice has not been released, and those of now's day.
func (o *oracle) used(now instant.Millis) (minute, day int64) {
	for _, at := range o.admitted {
		if released := at.Truncate(o.rule.Slice).Add(o.rule.Slice + o.rule.Window()); now < released {
			minute++
		}
		if at.Truncate(o.rule.Day) == now.Truncate(o.rule.Day) {
			day++
		}
	}
	return minute, day
}

func (o *oracle) take(now int64, limits plan.Limits, want int64) (granted int64) {
	minute, day := o.used(instant.Millis(now))
	granted = max(0, min(want, limits.Minute-minute, limits.Day-day))
	for range granted {
		o.admitted = append(o.admitted, instant.Millis(now))
	}
	return granted
}

var rules = []quota.Rule{
	{Slice: time.Second, Slices: 4, Day: time.Minute},
	{Slice: 10 * time.Millisecond, Slices: 1, Day: 10 * time.Millisecond},
	{Slice: 100 * time.Millisecond, Slices: 7, Day: time.Second},
	{Slice: 250 * time.Millisecond, Slices: 240, Day: 10 * time.Minute},
	quota.Product,
}

func drawLimits(t *rapid.T) plan.Limits {
	return plan.Limits{
		Minute: rapid.Int64Range(1, 12).Draw(t, "minute"),
		Day:    rapid.Int64Range(1, 40).Draw(t, "day"),
	}
}

// drawPause draws how long a client waits: mostly around slices, sometimes around windows and days.
func drawPause(t *rapid.T, rule quota.Rule) int64 {
	slice, window := rule.Slice.Milliseconds(), rule.Window().Milliseconds()
	return rapid.OneOf(
		rapid.Int64Range(0, 2*slice),
		rapid.Int64Range(0, 3*slice),
		rapid.Just(slice),
		rapid.Int64Range(0, window+2*slice),
		rapid.Int64Range(0, max(rule.Day.Milliseconds(), 2*window)),
	).Draw(t, "pause")
}

// The rule grants exactly what the oracle grants, no less and no more, and reports the same usage.
func TestTakeIsTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		o := oracle{rule: rule}
		var rec quota.Record
		limits, now := drawLimits(t), rapid.Int64Range(0, 2e12).Draw(t, "now")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "plan change") == 0 {
				limits = drawLimits(t)
			}
			now += drawPause(t, rule)
			want := rapid.Int64Range(0, 6).Draw(t, "want")
			granted := o.take(now, limits, want)
			v := rule.Take(&rec, instant.Millis(now), quota.Demand{Limits: limits, Want: want})
			minute, day := o.used(instant.Millis(now))
			if v.Granted != granted || v.Minute.Used != minute || v.Day.Used != day {
				t.Fatalf("at %d: %d of %d granted, %d and %d used; the oracle says %d, %d and %d",
					now, v.Granted, want, v.Minute.Used, v.Day.Used, granted, minute, day)
			}
		}
	})
}

// If the limit never changes, no window of the full length has more admissions than the limit, wherever the window begins.
// Clocks may step back and so lag more and more behind true time: the promise is about true time.
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
			if in > limits.Minute {
				t.Fatalf("at %d, %d admitted in one window, the limit is %d: %v", now, in, limits.Minute, admitted)
			}
		}
	})
}

// A clock that steps back, however far, shows no less use than before.
func TestSteppingBackReopensNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		rec, now, limits := drawRecord(t, rule)
		before := rule.Take(&rec, instant.Millis(now), quota.Demand{Limits: limits})
		now -= rapid.OneOf(rapid.Int64Range(1, 5_000), rapid.Int64Range(1, 1e9)).Draw(t, "back")
		after := rule.Take(&rec, instant.Millis(now), quota.Demand{Limits: limits})
		if after.Minute.Used != before.Minute.Used || after.Day.Used != before.Day.Used {
			t.Fatalf("used %d and %d, and after the step %d and %d",
				before.Minute.Used, before.Day.Used, after.Minute.Used, after.Day.Used)
		}
		if after.RetryAt() != 0 && after.RetryAt() <= instant.Millis(now) || after.Minute.ReleaseAt < instant.Millis(now) {
			t.Fatalf("at %d it promises the past: %+v", now, after)
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
			d.Spent.Minute = rapid.Int64Range(0, 20).Draw(t, "spent")
		}
		rule.Take(&rec, instant.Millis(now), d)
	}
	return rec, now, drawLimits(t)
}

// Every instant that a verdict names is true to the millisecond: a client that waits until then finds what it was promised,
// and a client that comes a millisecond earlier does not.
func TestPromisedInstantsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		rec, now, limits := drawRecord(t, rule)
		form := rule.Append(nil, &rec)
		at := func(now, want int64) quota.Verdict {
			again, err := rule.Decode(form)
			if err != nil {
				t.Fatal(err)
			}
			return rule.Take(&again, instant.Millis(now), quota.Demand{Limits: limits, Want: want})
		}
		v := at(now, 0)
		if retry := v.RetryAt(); retry == 0 {
			if at(now, 1).Granted != 1 {
				t.Fatalf("retry at once, but refused: %+v", v)
			}
		} else if retry <= instant.Millis(now) || at(int64(retry-1), 1).Granted != 0 || at(int64(retry), 1).Granted != 1 {
			t.Fatalf("retry at %d is not the first instant that admits one: %+v", retry, v)
		}
		if retry := v.Minute.RetryAt; retry != 0 {
			if at(int64(retry-1), 0).Minute.Remaining() != 0 || at(int64(retry), 0).Minute.Remaining() == 0 {
				t.Fatalf("the minute's retry at %d is not the first instant with one remaining: %+v", retry, v)
			}
		}
		if v.Minute.Used > 0 {
			reset, release := v.Minute.ResetAt, v.Minute.ReleaseAt
			if at(int64(reset-1), 0).Minute.Used == 0 || at(int64(reset), 0).Minute.Used != 0 {
				t.Fatalf("reset at %d is not when the window is empty: %+v", reset, v)
			}
			if at(int64(release-1), 0).Minute.Used != v.Minute.Used || at(int64(release), 0).Minute.Used >= v.Minute.Used {
				t.Fatalf("release at %d is not when use shrinks: %+v", release, v)
			}
		}
		if midnight := v.Day.ResetAt; at(int64(midnight-1), 0).Day.Used != v.Day.Used || at(int64(midnight), 0).Day.Used != 0 {
			t.Fatalf("the day's reset at %d is not its end: %+v", midnight, v)
		}
		if v.DayUse.Used != v.Day.Used || v.DayUse.Day != now/rule.Day.Milliseconds() {
			t.Fatalf("%+v is not the use of today", v.DayUse)
		}
	})
}

// A record that was encoded and decoded decides like the original, and its binary form is stable.
func TestFormKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.SampledFrom(rules).Draw(t, "rule")
		rec, now, limits := drawRecord(t, rule)
		form := rule.Append(nil, &rec)
		again, err := rule.Decode(form)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rule.Append(nil, &again), form) {
			t.Fatal("a decoded record has another form")
		}
		for range 10 {
			now += drawPause(t, rule)
			d := quota.Demand{Limits: limits, Want: 1}
			if want, got := rule.Take(&rec, instant.Millis(now), d), rule.Take(&again, instant.Millis(now), d); got != want {
				t.Fatalf("the decoded record decides %+v, the original %+v", got, want)
			}
		}
	})
}
