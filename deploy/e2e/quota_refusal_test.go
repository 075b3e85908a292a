package e2e_test

import (
	"testing"
	"time"

	"petgate/shared/testkit/fleet"
)

// Refused requests are not charged to the day, however many they are: after a change of plan, the whole day is left.
func TestRefusalCostsNothing(t *testing.T) {
	t.Parallel()
	const refused = 500
	s := newQuotaSite(t, 3, "GATEWAY_BAN_AFTER=0")
	key := s.NewTenant("t", "--plan", "free")
	began := time.Now()
	got := s.burst(key.Token, 60+refused)
	held := s.explain(key.Token)
	last := s.Gateways[0].Ask(key.Token)
	s.MustKeyadmin("tenant", "set-plan", "t", "pro")
	upgraded := time.Now()
	more := s.burst(key.Token, 300)
	after := s.explain(key.Token)
	took := time.Since(began)
	if took > 59*time.Second {
		t.Fatalf("the run took %v, longer than a window", took)
	}
	t.Logf("figure: a refusal costs nothing: of %d requests on plan free %d admitted and %d refused, %d of the day used; on "+
		"plan pro %d more at once, %d of the day used, all within %v", 60+refused, got[200], got[429], held.Day.Used,
		more[200], after.Day.Used, took.Round(time.Millisecond))
	if !s.exactly(got[200], 60) || !s.exactly(got[429], refused) || !s.exactly(int(held.Day.Used), 60) ||
		!s.exactly(int(held.Minute.Used), 60) || held.Passes || held.Code != "minute_quota_exceeded" || last.Code() != "minute_quota_exceeded" {
		t.Errorf("on plan free: %v, explained %+v, then %+v", got, held, last)
	}
	if !s.exactly(more[200], 240) || !s.exactly(more[429], 60) || !s.exactly(int(after.Day.Used), 300) || time.Since(upgraded) > 30*time.Second {
		t.Errorf("on plan pro: %v, explained %+v", more, after)
	}
}

// An operator sees the result of the next call without charging a request, and can reset a tenant's quota.
func TestUsageExplainAndReset(t *testing.T) {
	t.Parallel()
	s := newQuotaSite(t, 3, "GATEWAY_BAN_AFTER=0")
	key := s.NewTenant("t", "--minute", "20", "--day", "30")
	first := s.burst(key.Token, 15)
	before := s.explain(key.Token)
	again := s.explain(key.Token)
	rest := s.burst(key.Token, 10)
	held := s.explain(key.Token)
	s.MustKeyadmin("usage", "reset", "t", "--yes")
	reset := s.explain(key.Token)
	anew := s.burst(key.Token, 25)
	s.MustKeyadmin("tenant", "set-quota", "t", "--minute", "30", "--day", "30")
	day := s.burst(key.Token, 15)
	spent := s.explain(key.Token)
	if !s.exactly(first[200], 15) || !before.Passes || !s.exactly(int(before.Minute.Used), 15) ||
		!s.exactly(int(before.Day.Remaining), 15) || again != before {
		t.Errorf("after 15: %v, %+v, %+v", first, before, again)
	}
	if !s.exactly(rest[200], 5) || held.Passes || held.Code != "minute_quota_exceeded" || held.Until == "" ||
		!s.exactly(int(held.Minute.Used), 20) {
		t.Errorf("after 20: %v, %+v", rest, held)
	}
	if !reset.Passes || reset.Minute.Used != 0 || reset.Day.Used != 0 || !s.exactly(anew[200], 20) {
		t.Errorf("after the reset: %+v, then %v", reset, anew)
	}
	if !s.exactly(day[200], 10) || spent.Code != "day_quota_exceeded" || !s.exactly(int(spent.Day.Used), 30) {
		t.Errorf("the day: %v, %+v", day, spent)
	}
	t.Logf("figure: usage explain consumes nothing and says what a call meets; after usage reset %d of %d at once",
		anew[200], 20)
}

// In-process quotas survive a restart in the database: all usage after a clean exit, all but the last second after a kill.
func TestQuotasSurviveRestart(t *testing.T) {
	t.Parallel()
	s := openQuotaSite(t, fleet.Spec{Gateways: 1}, "GATEWAY_BAN_AFTER=0")
	key := s.NewTenant("t", "--minute", "60", "--day", "1000")
	gateway := s.Gateways[0]
	s.burst(key.Token, 30)
	if code := gateway.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	gateway.Start(t)
	stopped := s.explain(key.Token)

	s.burst(key.Token, 10)
	saved := time.Now()
	for time.Since(saved) < 2*time.Second { // usage older than a second is saved
		<-time.After(50 * time.Millisecond)
	}
	s.burst(key.Token, 10)
	gateway.Kill()
	gateway.Start(t)
	killed := s.explain(key.Token)
	rest := s.burst(key.Token, 60)
	t.Logf("figure: in-process quotas: %d of 30 known after SIGTERM, %d of 50 after SIGKILL, the last 10 of them in its last "+
		"second", stopped.Minute.Used, killed.Minute.Used)
	if stopped.Minute.Used != 30 || stopped.Day.Used != 30 {
		t.Errorf("after SIGTERM: %+v", stopped)
	}
	if killed.Minute.Used < 40 || killed.Minute.Used > 50 || killed.Day.Used != killed.Minute.Used {
		t.Errorf("after SIGKILL: %+v", killed)
	}
	if int64(rest[200]) != 60-killed.Minute.Used {
		t.Errorf("%v after %d of 60", rest, killed.Minute.Used)
	}
}
