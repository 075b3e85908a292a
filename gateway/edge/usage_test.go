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
	stored "petgate/shared/keystore/usage"
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

// Every exchange is said in the same way in the access log, the metrics and the usage, and its
// charge is in the usage. A request that is refused before its operation is known has none. One
// that never reaches the quota is not metered.
//
// A key that has ended is named, but its client learns nothing of this. A request that is refused
// for its size or its time names the key, if its head is whole.
func TestExchanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *setup) { s.ReadTimeout = 3 * time.Second })
	client := r.dial(t)
	withKeyLast := func(request string) string {
		return strings.TrimSuffix(withoutKey(request), "\r\n") + authorization + "\r\n\r\n"
	}
	tooLarge := rawPost("Content-Length: " + decimal(bodyMax+1))
	for _, e := range []exchange{
		{request: rawGet(), want: "200", operation: "listPets", counts: charged},
		{request: rawReport(token), want: "200", operation: "getQuota", counts: named, outcome: "report"},
		{request: strings.Replace(rawGet(), "GET", "DELETE", 1), want: "405 method_not_allowed", counts: charged},
		{request: rawTarget("/v1/none"), want: "404 no_such_route", counts: charged},
		{request: rawBearer(usedUpToken), want: "429 minute_quota_exceeded", counts: metered},
		{request: rawBearer(bannedToken), want: "429 key_banned", counts: named},
		{request: rawBearer(revokedToken), want: "401 invalid_api_key", counts: named},
		{request: rawBearer(expiredToken), want: "401 invalid_api_key", counts: named},
		{request: rawBearer(testToken), want: "401 invalid_api_key", counts: named},
		{request: rawBearer(unknownToken), want: "401 invalid_api_key"},

		{request: rawPost("Content-Length: 5") + "hell", want: "408 request_timeout", counts: named},
		{request: tooLarge, want: "413 body_too_large", counts: named},
		{request: rawChunked(hexadecimal(bodyMax+1) + "\r\n"), want: "413 body_too_large", counts: named},
		{request: rawTarget(longTarget(targetMax + 1)), want: "414 uri_too_long", counts: named},
		{request: withKeyLast(rawGet("Expect: more")), want: "417 expectation_failed", counts: named},
		{request: withKeyLast(rawGet(numbered("X-", 200)...)), want: "431 headers_too_large", counts: named},
		{request: withKeyLast(rawGet("X: " + repeat("a", fieldsMax))), want: "431 headers_too_large", counts: named},

		{request: withoutKey(tooLarge), want: "413 body_too_large"},
		{request: strings.Replace(tooLarge, token, unknownToken, 1), want: "413 body_too_large"},
		{request: strings.Replace(tooLarge, token, testToken, 1), want: "413 body_too_large"},
		{request: strings.Replace(tooLarge, authorization, authorization+"\r\n"+authorization, 1), want: "413 body_too_large"},
		{request: rawGet("X: " + repeat("a", 64<<10)), want: "431 headers_too_large"}, // the head does not fit
		{request: rawGet("X : y"), want: "400 bad_request"},
	} {
		got := r.exchange(t, client, e)
		isValid := e.counts != nobody && got.Status != 401
		must.Equal(t, strings.Contains(got.field("ratelimit"), "failed-attempts"), !isValid, "%v", got.Fields)
		must.Equal(t, strings.Contains(got.Body, "ten_"), got.Status == 200 && e.outcome == "report", "%s", got.Body)
	}
	for why, want := range map[string]float64{
		"disabled": 0, "expired": 1, "other_environment": 1, "replaced": 0, "revoked": 1,
	} {
		must.Equal(t, r.metric(t, "petgate_gateway_ended_key_requests_total", why), want, "%s keys", why)
	}
}

func withoutKey(request string) string { return strings.Replace(request, authorization+"\r\n", "", 1) }

func oneRow() (stored.Statement, error) {
	return stored.Statement{
		Rows: []stored.StatementRow{{Start: instant.Of(now), Key: id.Key{7}, Outcome: "key_banned", Requests: 3}},
	}, nil
}

func rawUsage(query string, fields ...string) string {
	return rawStart("GET /v1/usage"+query+" HTTP/1.1", fields...)
}

// A gateway for test keys has counts of their own: of the quota and of the usage.
func TestUsageOfTestKeys(t *testing.T) {
	var isAsked bool
	r := newRig(t, func(s *setup) {
		s.Environment = apikey.Test
		take := s.take
		s.take = func(a quotas.Request) (quota.Verdict, error) {
			isAsked = a.Test
			return take(a)
		}
	})
	request := strings.Replace(rawUsage(""), token, testToken, 1)
	got := r.exchange(t, r.dial(t), exchange{request: request, want: "200", operation: "getUsage", counts: charged})
	hasOwn := isAsked && strings.Contains(got.Body, `"rows":[]`)
	must.Equal(t, hasOwn, true, "whether test keys have their own: %s", got.Body)
}

// A statement is charged like any request, and the service sees nothing of it.
func TestStatement(t *testing.T) {
	r := newRig(t)
	client := r.dial(t)
	f := func(request, want, contentType, body string) {
		t.Helper()
		got := r.exchange(t, client, exchange{request: request, want: want, operation: "getUsage", counts: charged})
		must.Do(t, got.checkFields())
		vary := map[bool]string{true: "Accept"}[want == "200"]
		must.Equal(t, got.field("content-type")+"|"+got.field("x-stability")+"|"+got.field("vary"),
			contentType+"|beta|"+vary, "fields of %s", clip(request))
		must.Equal(t, strings.Contains(got.Body, body), true, "%s, want %s", got.Body, body)
	}
	f(rawUsage(""), "200", "application/json", `"outcome":"key_banned"`)
	f(rawUsage("", "Accept: text/csv"), "200", "text/csv; charset=utf-8; header=present", ",key_banned,3,")
	f(strings.Replace(rawUsage(""), "GET", "HEAD", 1), "200", "application/json", "")
	f(strings.Replace(rawUsage(""), token, readerToken, 1), "403 insufficient_scope", "application/json",
		"the API key needs the scope usage:read")
	f(rawUsage("?by=week"), "400 invalid_parameter", "application/json", `"details":{"parameter":"by"}`)
	must.Equal(t, len(r.upstream.Seen()), 0, "how many requests the service saw")
}
