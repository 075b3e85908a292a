package e2e_test

import "testing"

// An operator sees the result of the next call without charging a request, and can reset a tenant's quota. Refused requests are charged
// nothing, and a change of the limits holds from the next request on.
func TestUsageExplainAndReset(t *testing.T) {
	t.Parallel()
	s := newQuotaSite(t, 3, "GATEWAY_BAN_AFTER=0")
	key := s.NewTenant("t", "--minute", "20", "--day", "40")
	first := s.burst(key.Token, 15)
	before := s.explain(key.Token)
	again := s.explain(key.Token)
	rest := s.burst(key.Token, 100)
	held := s.explain(key.Token)
	if !s.exactly(first[200], 15) || !before.Passes || !s.exactly(int(before.Minute.Used), 15) ||
		!s.exactly(int(before.Day.Remaining), 25) || again != before {
		t.Errorf("after 15: %v, %+v, %+v", first, before, again)
	}
	if !s.exactly(rest[200], 5) || held.Passes || held.Code != "minute_quota_exceeded" || held.Until == "" ||
		!s.exactly(int(held.Minute.Used), 20) || !s.exactly(int(held.Day.Used), 20) {
		t.Errorf("after 20, and 95 refusals: %v, %+v", rest, held)
	}
	s.MustKeyadmin("usage", "reset", "t", "--yes")
	reset := s.explain(key.Token)
	anew := s.burst(key.Token, 25)
	if !reset.Passes || reset.Minute.Used != 0 || reset.Day.Used != 0 || !s.exactly(anew[200], 20) {
		t.Errorf("after the reset: %+v, then %v", reset, anew)
	}
	s.MustKeyadmin("tenant", "set-quota", "t", "--minute", "40", "--day", "40")
	day := s.burst(key.Token, 30)
	spent := s.explain(key.Token)
	if !s.exactly(day[200], 20) || spent.Code != "day_quota_exceeded" || !s.exactly(int(spent.Day.Used), 40) {
		t.Errorf("the day: %v, %+v", day, spent)
	}
	t.Logf("figure: usage explain consumes nothing and says what a call meets; after usage reset %d of %d at once", anew[200], 20)
}
