package edge_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Around midnight, the charged requests of each day add up to what the quota has charged to that day, although the gateway's
// clock differs from the quota's, and the quota's clock is set back over midnight once.
func TestUsageOfADayIsTheQuotasDay(t *testing.T) {
	const day = 24 * time.Hour
	midnight := now.Truncate(day).Add(day)
	entry := entries[apikey.Sum([]byte(token))]
	for _, ahead := range []time.Duration{-3 * time.Second, 3 * time.Second} {
		var clock atomic.Int64 // the quota's, in ms
		limits, err := quotas.Open(t.Context(), quotas.Config{Clock: func() time.Time { return time.UnixMilli(clock.Load()) }})
		must.Do(t, err)
		counted := map[instant.Millis]int64{} // charged requests by the start of their day
		r := newRig(t, func(s *setup) {
			s.Quotas = limits
			s.Clock = func() time.Time { return time.UnixMilli(clock.Load()).Add(ahead) }
			s.count = func(u directory.Usage) {
				operation := map[string]string{"ok": "listPets"}[u.Outcome]
				if !u.Metered || u.Charged != (u.Outcome != "minute_quota_exceeded") || u.Operation != operation {
					t.Errorf("counted %+v", u)
				}
				if u.Charged {
					counted[u.At.Truncate(day)]++
				}
			}
		})
		charged := map[instant.Millis]int64{}
		client := r.dial(t)
		clock.Store(midnight.Add(-time.Second).UnixMilli())
		for n := range 80 { // the last 20 are refused
			clock.Add(50)
			if n == 30 {
				clock.Add(-1000)
			}
			target := "/v1/pets"
			if n%3 == 0 {
				target = "/v1/none" // charged too
			}
			client.ask(t, strings.Replace(rawGet(), "/v1/pets", target, 1))
			ask := quotas.Request{}
			ask.Tenant, ask.Limits = entry.Tenant, entry.Limits
			v := limits.Known(ask).Usages[quota.Day]
			charged[v.ResetAt.Add(-day)] = v.Used
		}
		before, after := instant.Of(midnight.Add(-day)), instant.Of(midnight)
		if counted[before] != charged[before] || counted[after] != charged[after] || charged[before] == 0 || charged[before]+charged[after] != 60 {
			t.Errorf("the gateway's clock %v ahead: counted %v, charged %v", ahead, counted, charged)
		}
		if err := limits.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A key that has ended is named in the access log, and its requests are counted. Its client learns nothing of this.
func TestEndedKeysAreNamed(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(s *setup) { s.Metrics = registry })
	client := r.dial(t)
	for _, c := range []struct {
		token   string
		isNamed bool
	}{{revokedToken, true}, {expiredToken, true}, {testToken, true}, {unknownToken, false}} {
		r.accessLog.Reset()
		got := client.ask(t, rawKey("Authorization: Bearer "+c.token))
		testkit.Eventually(t, patience, "the access log has the line", func() bool { return r.accessLog.Len() > 0 })
		line, key := r.accessLog.String(), entries[apikey.Sum([]byte(c.token))].Key.String()
		if strings.Contains(line, `"key":"`+key+`"`) != c.isNamed || strings.Contains(line, `"tenant":"ten_`) != c.isNamed {
			t.Errorf("the access log has %s", line)
		}
		if got.Status != 401 || strings.Contains(got.Body, "ten_") || !strings.Contains(got.field("ratelimit"), "failed-attempts") {
			t.Errorf("%d %v %s", got.Status, got.Fields, got.Body)
		}
	}
	const name = "petgate_gateway_ended_key_requests_total"
	want := "# HELP " + name + " Requests with a known key that is revoked, disabled, expired, replaced or of another environment.\n" +
		"# TYPE " + name + " counter\n"
	for _, why := range []string{`disabled"} 0`, `expired"} 1`, `other_environment"} 1`, `replaced"} 0`, `revoked"} 1`} {
		want += name + `{why="` + why + "\n"
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

// A request that is refused before its operation is known has none, and one that never reaches the quota is not metered.
func TestUsageOfRequests(t *testing.T) {
	var counted []directory.Usage
	r := newRig(t, func(s *setup) {
		s.count = func(u directory.Usage) { counted = append(counted, u) }
	})
	client := r.dial(t)
	for _, want := range []struct {
		request            string
		operation, outcome string
		charged, metered   bool
	}{
		{rawGet(), "listPets", "ok", true, true},
		{strings.Replace(rawGet(), "/v1/pets", "/v1/quota", 1), "getQuota", "report", false, false},
		{rawUsage(""), "getUsage", "ok", true, true},
		{rawUsage("?by=year"), "getUsage", "invalid_parameter", true, true},
		{strings.Replace(rawGet(), "/v1/pets", "/v1/none", 1), "", "no_such_route", true, true},
		{strings.Replace(rawGet(), "GET", "DELETE", 1), "", "method_not_allowed", true, true},
		{rawKey("Authorization: Bearer " + usedUpToken), "", "minute_quota_exceeded", false, true},
		{rawKey("Authorization: Bearer " + bannedToken), "", "key_banned", false, false},
		{rawKey("Authorization: Bearer " + revokedToken), "", "invalid_api_key", false, false},
		{rawKey("Authorization: Bearer " + testToken), "", "invalid_api_key", false, false},
	} {
		counted = nil
		client.ask(t, want.request)
		if len(counted) != 1 || counted[0].Operation != want.operation || counted[0].Outcome != want.outcome ||
			counted[0].Charged != want.charged || counted[0].Metered != want.metered {
			t.Errorf("%q counted %+v, want %+v", want.request, counted, want)
		}
	}
}

// A request that is refused for its size or its time has the figures of its key, and counts for its tenant, if its head is whole. It
// is not charged.
func TestRefusalsOfASizeNameTheKey(t *testing.T) {
	var counted []directory.Usage
	r := newRig(t, func(s *setup) {
		s.ReadTimeout = time.Second
		s.count = func(u directory.Usage) { counted = append(counted, u) }
	})
	known := entries[apikey.Sum([]byte(token))]
	f := func(code, request string, isNamed bool) {
		t.Helper()
		counted = nil
		r.accessLog.Reset()
		got := r.dial(t).ask(t, request)
		r.awaitLines(t, 1)
		limit, isLogged := "120", strings.Contains(r.accessLog.String(), known.Key.String())
		if isNamed {
			limit = "60"
		}
		if codeOf(got) != code || got.field("x-ratelimit-limit") != limit || isLogged != isNamed || (len(counted) == 1) != isNamed ||
			isNamed && (counted[0].Tenant != known.Tenant || counted[0].Outcome != code || counted[0].Charged || counted[0].Metered) {
			t.Errorf("%.80q: got %d %s, limit %s; counted %+v; logged %s", request, got.Status, codeOf(got), got.field("x-ratelimit-limit"), counted, r.accessLog)
		}
	}
	last := func(request string) string { return strings.Replace(request, authorization+"\r\n", "", 1) }
	withKeyLast := func(request string) string {
		return strings.TrimSuffix(last(request), "\r\n") + authorization + "\r\n\r\n"
	}
	tooLarge := rawPost("Content-Length: " + decimal(bodyMax+1))
	f("request_timeout", rawPost("Content-Length: 5")+"hell", true)
	f("body_too_large", tooLarge, true)
	f("body_too_large", rawChunked(hexadecimal(bodyMax+1)+"\r\n"), true)
	f("uri_too_long", rawTarget(longTarget(targetMax+1)), true)
	f("expectation_failed", withKeyLast(rawGet("Expect: more")), true)
	f("headers_too_large", withKeyLast(rawGet(numbered("X-", 200)...)), true)
	f("headers_too_large", withKeyLast(rawGet("X: "+repeat("a", fieldsMax))), true)

	f("body_too_large", last(tooLarge), false)
	f("body_too_large", strings.Replace(tooLarge, token, unknownToken, 1), false)
	f("body_too_large", strings.Replace(tooLarge, authorization, authorization+"\r\n"+authorization, 1), false)
	f("headers_too_large", rawGet("X: "+repeat("a", 64<<10)), false) // the head does not fit
	f("bad_request", rawGet("X : y"), false)
}
