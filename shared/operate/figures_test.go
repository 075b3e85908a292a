package operate

import (
	"maps"
	"slices"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// Of limits that refuse a call until the same time, the longest of the tenant's is told, and then
// the longest of the key's.
func TestRefusal(t *testing.T) {
	t.Parallel()
	var f figures
	members := [5]**PolicyUse{&f.Minute, &f.Day, &f.Month, &f.KeyMinute, &f.KeyDay}
	for _, at := range []int{3, 4, 0, 1, 2} { // in policyTexts: each is told rather than those before it
		*members[at] = &PolicyUse{RetryAt: 7}
		_, got := f.refusal()
		must.Equal(t, policyTexts[got].name, policyTexts[at].name, "the one that is told")
	}
}

// answerOf is a gateway's answer with the requests of its tenants.
func answerOf(id string, since, elapsed int64, tenants ...LiveTenant) Figures {
	f := Figures{
		Gateway: keystore.Gateway{ID: "gw", Incarnation: id},
		Live:    Live{Since: since, Elapsed: elapsed, Tenants: tenants},
	}
	for _, t := range tenants {
		f.Requests += t.Requests
	}
	return f
}

// Rates are exact: over several gateways, for a tenant that begins to call, and after a gateway's
// restart.
func TestRates(t *testing.T) {
	t.Parallel()
	type tenants = []LiveTenant
	var w Watch
	for _, c := range []struct {
		name    string
		answers []Figures
		want    map[string]float64
		all     float64
	}{
		{"the first answers", []Figures{
			answerOf("1", 1, 1000, LiveTenant{ID: "a", Requests: 500}),
			answerOf("2", 1, 99, LiveTenant{ID: "a", Requests: 7}),
		}, map[string]float64{"a": 0}, 0},
		{"two gateways", []Figures{
			answerOf("1", 1, 3000, LiveTenant{ID: "a", Requests: 520}),
			answerOf("2", 1, 2099, LiveTenant{ID: "a", Requests: 17}),
		}, map[string]float64{"a": 15}, 15},
		{"b begins, and c was there but not listed", []Figures{
			answerOf("1", 1, 4000, tenants{
				{ID: "a", Requests: 520}, {ID: "b", Requests: 3, Since: 3500}, {ID: "c", Requests: 900, Since: 2000},
			}...),
		}, map[string]float64{"a": 0, "b": 3, "c": 0}, 903},
		{"b was idle, and begins again", []Figures{
			answerOf("1", 1, 5000, tenants{
				{ID: "b", Requests: 5, Since: 4800}, {ID: "c", Requests: 901, Since: 2000},
			}...),
		}, map[string]float64{"b": 5, "c": 1}, -517},
		{"a restart", []Figures{
			answerOf("1", 2, 800, LiveTenant{ID: "b", Requests: 9, Since: 1}),
		}, map[string]float64{"b": 0}, 0},
		{"after the restart", []Figures{
			answerOf("1", 2, 1800, LiveTenant{ID: "b", Requests: 10, Since: 1}),
		}, map[string]float64{"b": 1}, 1},
	} {
		w.compare(c.answers)
		got, all := map[string]float64{}, 0.0
		for id, tenant := range SumTenants(c.answers) {
			got[id] = tenant.RequestRate
		}
		for _, f := range c.answers {
			all += f.RequestRate
		}
		if !maps.Equal(got, c.want) || all != c.all {
			t.Errorf("%s: %v and %v in all, want %v and %v", c.name, got, all, c.want, c.all)
		}
	}
}

// The use of a quota is that of the gateway that has decided last, not what another remembers.
func TestSumTenantsTakesTheLatestUse(t *testing.T) {
	t.Parallel()
	answers := func(elapsed int64, second, third LiveTenant) []Figures {
		return []Figures{
			answerOf("1", 1, elapsed, LiveTenant{ID: "a", Requests: 5, MinuteUsed: 60, DayUsed: 100, MonthUsed: 200}),
			answerOf("2", 1, elapsed, second), answerOf("3", 1, elapsed, third),
		}
	}
	var w Watch
	w.compare(answers(1000, LiveTenant{ID: "a", Requests: 5}, LiveTenant{ID: "a", Requests: 5}))
	now := answers(2000, LiveTenant{ID: "a", Requests: 6, Refused: 2, MinuteUsed: 3, DayUsed: 103, MonthUsed: 203},
		LiveTenant{ID: "a", Requests: 7, Refused: 2, MinuteUsed: 4, DayUsed: 102, MonthUsed: 202})
	now[2].Elapsed = 1500
	w.compare(now)
	for range 2 { // in the other order, too
		if got := SumTenants(now)["a"]; got.MinuteUsed != 4 || got.DayUsed != 103 || got.MonthUsed != 203 ||
			got.Seconds != 1 ||
			got.RequestRate != 5 ||
			got.RefusedRate != 6 {
			t.Errorf("%+v, want minute 4, day 103, month 203, in 1 s, at 5 and 6 a second", got)
		}
		slices.Reverse(now)
	}
}

func TestPercentile(t *testing.T) {
	was := []uint64{7, 7, 7}
	for _, c := range []struct {
		name string
		took []uint64
		part float64
		want float64 // ms; -1: none
	}{
		{"no requests", []uint64{7, 7, 7}, 0.5, -1},
		{"all in the first bucket", []uint64{17, 17, 17}, 0.5, 0.5},
		{"in the middle of the second", []uint64{7, 17, 17}, 0.5, 5.5},
		{"an empty bucket between", []uint64{12, 12, 17}, 0.99, 98.2},
		{"above the last time", []uint64{7, 7, 17}, 1, 100},
		{"an answer without times", nil, 0.5, -1},
	} {
		f := Figures{Live: Live{Within: []float64{0.001, 0.01, 0.1}, Took: c.took}, was: Live{Took: was}}
		if got := f.percentile(c.part); got == nil && c.want >= 0 || got != nil && *got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
