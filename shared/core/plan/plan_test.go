package plan_test

import (
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
		{"half set", plan.Limits{}, plan.Limits{Minute: 7}, plan.Limits{Minute: 7}, false},
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
		ok     bool
	}{
		{plan.Limits{}, true},
		{plan.Limits{Minute: 1, Day: 1}, true},
		{plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax}, true},
		{plan.Limits{Minute: -1, Day: 1}, false},
		{plan.Limits{Minute: 1, Day: plan.LimitMax + 1}, false},
	} {
		if err := c.limits.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: Check = %v", c.limits, err)
		}
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
