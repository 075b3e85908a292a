package edge_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/quotas"
	"petgate/gateway/usage"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Around midnight, the charged requests of each day add up to what the quota has charged to that
// day, although the gateway's clock differs from the quota's, and the quota's clock is set back
// over midnight once.
func TestUsageOfADayIsTheQuotasDay(t *testing.T) {
	const day = 24 * time.Hour
	midnight := now.Truncate(day).Add(day)
	entry := entryOf(token)
	for _, ahead := range []time.Duration{-3 * time.Second, 3 * time.Second} {
		var clock atomic.Int64 // the quota's, in ms
		limits, err := quotas.Open(t.Context(),
			quotas.Config{Clock: func() time.Time { return time.UnixMilli(clock.Load()) }})
		must.Do(t, err)
		counted := map[instant.Millis]int64{} // charged requests by the start of their day
		r := newRig(t, func(s *setup) {
			s.Quotas = limits
			s.Clock = func() time.Time { return time.UnixMilli(clock.Load()).Add(ahead) }
			s.count = func(u usage.Request) {
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
			client.ask(t, rawTarget(target))
			ask := quotas.Request{}
			ask.Tenant, ask.Limits = entry.Tenant, entry.Limits
			v := limits.Known(ask).Usages[quota.Day]
			charged[v.ResetAt.Add(-day)] = v.Used
		}
		before, after := instant.Of(midnight.Add(-day)), instant.Of(midnight)
		if counted[before] != charged[before] || counted[after] != charged[after] || charged[before] == 0 ||
			charged[before]+charged[after] != 60 {
			t.Errorf("the gateway's clock %v ahead: counted %v, charged %v", ahead, counted, charged)
		}
		must.Do(t, limits.Close(t.Context()))
	}
}

// A key that has ended is named in the access log, and its requests are counted. Its client learns
// nothing of this.
func TestEndedKeysAreNamed(t *testing.T) {
	r := newRig(t, nil)
	client := r.dial(t)
	for _, c := range []struct {
		token   string
		isNamed bool
	}{{revokedToken, true}, {expiredToken, true}, {testToken, true}, {unknownToken, false}} {
		r.accessLog.Reset()
		got := client.ask(t, rawKey("Authorization: Bearer "+c.token))
		testkit.Eventually(t, patience, "the access log has the line", func() bool { return r.accessLog.Len() > 0 })
		line, key := r.accessLog.String(), entryOf(c.token).Key.String()
		if strings.Contains(line, `"key":"`+key+`"`) != c.isNamed ||
			strings.Contains(line, `"tenant":"ten_`) != c.isNamed {
			t.Errorf("the access log has %s", line)
		}
		got.expect(t, "a key that has ended", "401 invalid_api_key")
		if strings.Contains(got.Body, "ten_") || !strings.Contains(got.field("ratelimit"), "failed-attempts") {
			t.Errorf("%v %s", got.Fields, got.Body)
		}
	}
	for why, want := range map[string]float64{"disabled": 0, "expired": 1, "other_environment": 1, "replaced": 0, "revoked": 1} {
		must.Equal(t, r.metric(t, "petgate_gateway_ended_key_requests_total", why), want,
			"how many requests are counted as %s", why)
	}
}

// A request that is refused before its operation is known has none, and one that never reaches the
// quota is not metered.
func TestUsageOfRequests(t *testing.T) {
	var counted []usage.Request
	r := newRig(t, func(s *setup) {
		s.count = func(u usage.Request) { counted = append(counted, u) }
	})
	client := r.dial(t)
	for _, want := range []struct {
		request            string
		operation, outcome string
		charged, metered   bool
	}{
		{rawGet(), "listPets", "ok", true, true},
		{rawReport(token), "getQuota", "report", false, false},
		{rawUsage(""), "getUsage", "ok", true, true},
		{rawUsage("?by=year"), "getUsage", "invalid_parameter", true, true},
		{rawTarget("/v1/none"), "", "no_such_route", true, true},
		{strings.Replace(rawGet(), "GET", "DELETE", 1), "", "method_not_allowed", true, true},
		{rawBearer(usedUpToken), "", "minute_quota_exceeded", false, true},
		{rawBearer(bannedToken), "", "key_banned", false, false},
		{rawBearer(revokedToken), "", "invalid_api_key", false, false},
		{rawBearer(testToken), "", "invalid_api_key", false, false},
	} {
		counted = nil
		client.ask(t, want.request)
		if len(counted) != 1 || counted[0].Operation != want.operation || counted[0].Outcome != want.outcome ||
			counted[0].Charged != want.charged || counted[0].Metered != want.metered || counted[0].IsTest != (want.request == rawBearer(testToken)) {
			t.Errorf("%q counted %+v, want %+v", want.request, counted, want)
		}
	}
}

// A request that is refused for its size or its time has the figures of its key, and counts for its
// tenant, if its head is whole. It is not charged.
func TestRefusalsOfASizeNameTheKey(t *testing.T) {
	var counted []usage.Request
	r := newRig(t, func(s *setup) {
		s.ReadTimeout = 3 * time.Second
		s.count = func(u usage.Request) { counted = append(counted, u) }
	})
	known := entryOf(token)
	f := func(code, request string, isNamed bool) {
		t.Helper()
		counted = nil
		r.accessLog.Reset()
		got := r.ask(t, request)
		r.awaitLines(t, 1)
		limit, isLogged := "120", strings.Contains(r.accessLog.String(), known.Key.String())
		if isNamed {
			limit = "60"
		}
		if got.Code != code || got.field("x-ratelimit-limit") != limit || isLogged != isNamed ||
			(len(counted) == 1) != isNamed ||
			isNamed &&
				(counted[0].Tenant != known.Tenant || counted[0].Outcome != code || counted[0].Charged || counted[0].Metered) {
			t.Errorf("%.80q: got %d %s, limit %s; counted %+v; logged %s", request, got.Status, got.Code,
				got.field("x-ratelimit-limit"), counted, r.accessLog)
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
	f("body_too_large", strings.Replace(tooLarge, token, testToken, 1), false)
	f("body_too_large", strings.Replace(tooLarge, authorization, authorization+"\r\n"+authorization, 1), false)
	f("headers_too_large", rawGet("X: "+repeat("a", 64<<10)), false) // the head does not fit
	f("bad_request", rawGet("X : y"), false)
}

func oneRow() (keystore.Statement, error) {
	return keystore.Statement{
		Rows: []keystore.StatementRow{{Start: instant.Of(now), Key: id.Key{7}, Outcome: "key_banned", Requests: 3}},
	}, nil
}

func rawUsage(query string, fields ...string) string {
	return rawStart("GET /v1/usage"+query+" HTTP/1.1", fields...)
}

// A gateway for test keys has counts of their own: of the quota and of the usage.
func TestUsageOfTestKeys(t *testing.T) {
	var isAsked, isCounted bool
	r := newRig(t, func(s *setup) {
		s.Environment = apikey.Test
		s.count = func(u usage.Request) { isCounted = u.IsTest }
		take := s.take
		s.take = func(a quotas.Request) (quota.Verdict, error) {
			isAsked = a.Test
			return take(a)
		}
	})
	got := r.ask(t, strings.Replace(rawUsage(""), token, testToken, 1))
	must.Equal(t, isAsked && isCounted && strings.Contains(got.Body, `"rows":[]`), true,
		"whether test keys have their own: %s", got.Body)
}

// A statement is charged like any request, and the service sees nothing of it.
func TestStatement(t *testing.T) {
	r := newRig(t, nil)
	client := r.dial(t)
	f := func(request string, status int, contentType, want string) {
		t.Helper()
		before := r.admitted.Load()
		got := client.ask(t, request)
		if err := got.checkFields(); got.Status != status || !strings.Contains(got.Body, want) || got.field("content-type") != contentType ||
			got.field("x-stability") != "beta" ||
			(got.field("vary") == "Accept") != (status == 200) ||
			err != nil ||
			r.admitted.Load() != before+1 {
			t.Errorf("%d %v, %d charged, %v\n%s\nwant\n%s", got.Status, got.Fields, r.admitted.Load()-before, err,
				got.Body, want)
		}
	}
	f(rawUsage(""), 200, "application/json", `"outcome":"key_banned"`)
	f(rawUsage("", "Accept: text/csv"), 200, "text/csv; charset=utf-8; header=present", ",key_banned,3,")
	f(strings.Replace(rawUsage(""), "GET", "HEAD", 1), 200, "application/json", "")
	f(strings.Replace(rawUsage(""), token, readerToken, 1), 403, "application/json",
		"the API key needs the scope usage:read")
	f(rawUsage("?by=week"), 400, "application/json", `"details":{"parameter":"by"}`)
	r.awaitLines(t, 5)
	if lines := r.accessLog.String(); strings.Count(lines, `"operation":"getUsage"`) != 5 ||
		strings.Count(lines, `"outcome":"ok"`) != 3 ||
		len(r.upstream.Seen()) > 0 {
		t.Errorf("the upstream got a request, or the access log has %s", lines)
	}
}
