package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// A key that ignores its refusals is banned, everywhere within a second, for as long as its responses say. Each ban is longer
// than the last one. A ban survives restarts, and an operator can lift it.
func TestBans(t *testing.T) {
	t.Parallel()
	const first = 6 * time.Second
	s := newQuotaSite(t, 3, "GATEWAY_BAN_AFTER=5", "GATEWAY_BAN_FOR="+first.String(), "GATEWAY_BAN_MAX=1h")
	key := s.NewTenant("t", "--minute", "1", "--day", "100000")

	requests, spread := s.provoke(key, s.Gateways[0])
	t.Logf("figure: a key that ignores Retry-After is banned after %d requests; the other gateways know %v later", requests,
		spread.Round(time.Millisecond))
	s.MustKeyadmin("tenant", "set-quota", "t", "--minute", "1000", "--day", "100000") // neither lifts nor shortens it
	said, off := s.awaitEnd(key, s.Gateways[1])
	if said > first+time.Second {
		t.Errorf("the first ban is said to last %v more, want at most %v", said, first)
	}

	s.MustKeyadmin("tenant", "set-quota", "t", "--minute", "1", "--day", "100000", "--yes")
	s.provoke(key, s.Gateways[1]) // at a different gateway this time
	s.MustKeyadmin("tenant", "set-quota", "t", "--minute", "1000", "--day", "100000")
	second := s.banLength(key)
	for _, gateway := range s.Gateways {
		gateway.Kill()
		gateway.Launch(t)
	}
	for _, gateway := range s.Gateways {
		gateway.AwaitReady(t)
		if got := gateway.Ask(key.Token); got.Code() != "key_banned" {
			t.Errorf("%s, started again, answers %d %s to a banned key", gateway.ID, got.Status, got.Code())
		}
	}
	_, offAgain := s.awaitEnd(key, s.Gateways[2])

	s.MustKeyadmin("tenant", "set-quota", "t", "--minute", "1", "--day", "100000", "--yes")
	s.provoke(key, s.Gateways[2]) // which has seen no ban since it was started again
	third := s.banLength(key)
	s.MustKeyadmin("ban", "lift", key.ID)
	for _, gateway := range s.Gateways {
		if got := gateway.Ask(key.Token); got.Code() == "key_banned" {
			t.Errorf("%s: banned after the ban was lifted", gateway.ID)
		}
	}
	t.Logf("figure: bans of one key at three gateways last %v, %v, %v; they end %v and %v off what Retry-After said, the second "+
		"one after all gateways were killed; lifted at once", first, second, third,
		off.Round(time.Millisecond), offAgain.Round(time.Millisecond))
	if second != 2*first || third != 4*first {
		t.Errorf("the second ban lasts %v, the third %v; want %v and %v", second, third, 2*first, 4*first)
	}
}

// provoke sends refused requests until the key is banned. It returns the number of requests and the time until all
// gateways knew.
func (s *quotaSite) provoke(key fleet.Key, gateway *fleet.Program) (requests int, spread time.Duration) {
	s.t.Helper()
	left := 1 << 20
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		got := gateway.Ask(key.Token)
		requests++
		if got.Code() == "key_banned" || strings.Contains(got.Message(), "is banned until then") {
			break
		}
		if got.Code() == "minute_quota_exceeded" && got.StrikesUntilBan() > left {
			s.t.Errorf("%d more strikes until a ban, after %d", got.StrikesUntilBan(), left)
		}
		left = got.StrikesUntilBan()
		if got.Status == 200 {
			left = 1 << 20
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("no ban after %d requests: %+v", requests, got)
		}
	}
	banned := time.Now()
	for _, other := range s.Gateways {
		testkit.Eventually(s.t, fleet.ReplyWithin, other.ID+" knows of the ban", func() bool {
			return other.Ask(key.Token).Code() == "key_banned"
		})
	}
	return requests, time.Since(banned)
}

// awaitEnd sends requests until a banned key is served again. It returns the announced length of the ban and its error.
func (s *quotaSite) awaitEnd(key fleet.Key, gateway *fleet.Program) (said, off time.Duration) {
	s.t.Helper()
	got := gateway.Ask(key.Token)
	if got.Code() != "key_banned" || got.RetryAfter() == 0 {
		s.t.Fatalf("not banned: %+v", got)
	}
	ends := got.At.Add(got.RetryAfter())
	for said = got.RetryAfter(); got.Status != 200; <-time.After(10 * time.Millisecond) {
		if got = gateway.Ask(key.Token); got.Status != 200 && got.At.Sub(ends) > 5*time.Second {
			s.t.Fatalf("5 s after its ban ended: %+v", got)
		}
	}
	if off = got.At.Sub(ends); off < -time.Second || off > 5*time.Second { // late also means that the machine was busy
		s.t.Errorf("a ban ended %v off what was said", off)
	}
	return said, off
}

// banLength is the length of the key's whole ban, as operators see it.
func (s *quotaSite) banLength(key fleet.Key) time.Duration {
	s.t.Helper()
	var bans []struct {
		KeyID            string
		ImposedAt, Until time.Time
	}
	out := s.MustKeyadmin("ban", "list", "--output", "json")
	if err := json.Unmarshal([]byte(out), &bans); err != nil || len(bans) != 1 || bans[0].KeyID != key.ID {
		s.t.Fatalf("keyadmin ban list: %v\n%s", err, out)
	}
	return bans[0].Until.Sub(bans[0].ImposedAt)
}
