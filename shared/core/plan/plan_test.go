package plan_test

import (
	"strconv"
	"strings"
	"testing"

	"petgate/shared/core/plan"
)

func TestEffective(t *testing.T) {
	free := plan.Limits{Minute: 60, Day: 1000}
	for _, c := range []struct {
		name           string
		plan, override plan.Limits
		want           plan.Limits
		set            bool
	}{
		{"no override", free, plan.Limits{}, free, true},
		{"minute only", free, plan.Limits{Minute: 5}, plan.Limits{Minute: 5, Day: 1000}, true},
		{"day only", free, plan.Limits{Day: 5}, plan.Limits{Minute: 60, Day: 5}, true},
		{"a plan without limits", plan.Limits{}, plan.Limits{Minute: 7, Day: 70}, plan.Limits{Minute: 7, Day: 70}, true},
		{"month only", free, plan.Limits{Month: 5000}, plan.Limits{Minute: 60, Day: 1000, Month: 5000}, true},
		{"one policy", plan.Limits{}, plan.Limits{Minute: 7}, plan.Limits{Minute: 7}, true},
		{"nothing set", plan.Limits{}, plan.Limits{}, plan.Limits{}, false},
	} {
		if got := plan.Effective(c.plan, c.override); got != c.want || got.IsSet() != c.set {
			t.Errorf("%s: Effective = %+v (set: %t), want %+v (set: %t)", c.name, got, got.IsSet(), c.want, c.set)
		}
	}
}

func TestCheck(t *testing.T) {
	f := func(what string, err error, want string) {
		t.Helper()
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	for _, c := range []struct {
		limits plan.Limits
		want   string // the error; empty: none
	}{
		{plan.Limits{}, ""},
		{plan.Limits{Minute: 1, Day: 1}, ""},
		{plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}, ""},
		{plan.Limits{Minute: -1, Day: 1}, "a minute limit of -1 is out of range: use 1 to 1000000000"},
		{plan.Limits{Minute: 1, Day: plan.LimitMax + 1}, "a day limit of 1000000001 is out of range: use 1 to 1000000000"},
		{plan.Limits{Minute: 60, Day: 59}, "a day limit of 59 is below the minute limit of 60, which could never be reached: " +
			"raise the day limit, or lower the minute limit"},
	} {
		f("the limits of a plan", c.limits.Check(), c.want)
		f("the limits of a key", c.limits.CheckKey(), c.want)
	}
	const rule = ", which could never be reached: raise the month limit, or lower the "
	f("limits per month", plan.Limits{Minute: 1, Day: 1, Month: 1}.Check(), "")
	f("a month below the minute", plan.Limits{Minute: 60, Month: 59}.Check(),
		"a month limit of 59 is below the minute limit of 60"+rule+"minute limit")
	f("a month below the day", plan.Limits{Minute: 1, Day: 60, Month: 59}.Check(),
		"a month limit of 59 is below the day limit of 60"+rule+"day limit")
	f("a key's month", plan.Limits{Month: 1}.CheckKey(), "a key has no month limit of its own: use a day limit")
	f("a month from the first", plan.CheckMonthStarts(0), "")
	f("a month from the 28th", plan.CheckMonthStarts(28), "")
	f("a month from the 29th", plan.CheckMonthStarts(29),
		"a month cannot start on day 29: use 1 to 28, which every month has")
	f("a cost that fits", plan.Limits{Minute: 5, Month: 5}.Admit("listPets", 5), "")
	f("one that does not", plan.Limits{Minute: 9, Day: 5}.Admit("listPets", 6),
		"a request of operation listPets costs 6, so a day limit of 5 never admits it: raise the limit, or lower its x-cost")
	for _, name := range []string{"free", "team-2", "a" + strings.Repeat("z", 39)} {
		f(name, plan.CheckName(name), "")
	}
	for _, name := range []string{"", "2fast", "Free", "a b", "ünder", "a" + strings.Repeat("z", 40)} {
		f(name, plan.CheckName(name), strconv.Quote(name)+
			" is not a plan name: use up to 40 lower-case letters, digits and hyphens, a letter first")
	}
}

func TestIsLess(t *testing.T) {
	for _, c := range []struct {
		was, is         plan.Limits
		isLess, narrows bool
	}{
		{plan.Limits{Minute: 60, Day: 1000}, plan.Limits{Minute: 60, Day: 1000}, false, false},
		{plan.Limits{Minute: 60, Day: 1000}, plan.Limits{Minute: 61, Day: 999}, true, true},
		{plan.Limits{Minute: 60, Day: 1000}, plan.Limits{Minute: 60}, false, false}, // the day is no longer limited
		{plan.Limits{Minute: 60}, plan.Limits{Minute: 60, Month: 5000}, true, true}, // the month is limited
		{plan.Limits{Minute: 60}, plan.Limits{}, true, false},                       // a tenant without limits is refused
		{plan.Limits{}, plan.Limits{Minute: 60}, false, true},
	} {
		if got := c.is.IsLess(c.was); got != c.isLess || c.is.Narrows(c.was) != c.narrows {
			t.Errorf("%+v to %+v: less %t, narrower %t", c.was, c.is, got, c.is.Narrows(c.was))
		}
	}
}
