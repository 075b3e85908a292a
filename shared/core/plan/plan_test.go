package plan_test

import (
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
		got := plan.Effective(c.plan, c.override)
		if got != c.want || got.IsSet() != c.set {
			t.Errorf("%s: Effective = %+v (set: %t), want %+v (set: %t)", c.name, got, got.IsSet(), c.want, c.set)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		limits plan.Limits
		want   string // a part of the error; empty: none
	}{
		{plan.Limits{}, ""},
		{plan.Limits{Minute: 1, Day: 1, Month: 1}, ""},
		{plan.Limits{Month: 1}, ""},
		{plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}, ""},
		{plan.Limits{Minute: -1, Day: 1}, "minute limit of -1 is out of range"},
		{plan.Limits{Minute: 1, Day: plan.LimitMax + 1}, "day limit of 1000000001 is out of range"},
		{plan.Limits{Minute: 60, Day: 59}, "day limit of 59 is below the minute limit of 60, which could never be reached: raise the day limit, or lower the minute limit"},
		{plan.Limits{Minute: 60, Month: 59}, "month limit of 59 is below the minute limit of 60"},
		{plan.Limits{Day: 60, Month: 59}, "month limit of 59 is below the day limit of 60"},
	} {
		if err := c.limits.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: Check = %v, want %q", c.limits, err, c.want)
		}
	}
	if (plan.Limits{Minute: 1, Day: 1}).CheckKey() != nil || (plan.Limits{Month: 1}).CheckKey() == nil {
		t.Error("a key may have limits per minute and per day, and no other")
	}
	if plan.CheckMonthStarts(0) != nil || plan.CheckMonthStarts(28) != nil || plan.CheckMonthStarts(29) == nil {
		t.Error("a month may start on days 1 to 28")
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"free": true, "team-2": true, "": false, "2fast": false, "Free": false, "a b": false, "ünder": false,
	} {
		if err := plan.CheckName(name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
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
