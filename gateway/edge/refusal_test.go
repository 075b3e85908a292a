package edge_test

import (
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/authfailures"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// deciding has the quotas decide on a tenant that has used so much of each limit. change completes
// their verdict.
func deciding(used int64, change func(*quota.Verdict)) func(*setup) {
	return func(s *setup) {
		s.take = func(a quotas.Request) (quota.Verdict, error) {
			v := verdict(a.Limits, used)
			change(&v)
			return v, nil
		}
	}
}

// Every row of the table is provoked over a connection, and has its status, its body, and the
// headers that every response has.
func TestEveryRefusal(t *testing.T) {
	provoked := map[string]bool{}
	check := func(r *rig, got answer, code string, status int, charged bool) {
		t.Helper()
		provoked[code] = true
		got.expect(t, code, fmt.Sprint(status, " ", code))
		hasDetails := strings.Contains(got.Body, `"details":{`)
		if wasCharged := r.admitted.Load() > 0; wasCharged != charged ||
			hasDetails != (status == 429 || code == "invalid_parameter") {
			t.Errorf("%s: charged: %t, want %t; %s", code, wasCharged, charged, got.Body)
		}
	}
	f := func(code string, status int, charged bool, request string, change func(*setup)) {
		t.Helper()
		r := newRig(t, change)
		check(r, r.ask(t, request), code, status, charged)
	}
	answering := func(timeout time.Duration, c func(net.Conn, upstreamRequest) bool) func(*setup) {
		return func(s *setup) {
			u := newRawUpstream(t)
			u.Answer(c)
			s.Upstreams, s.UpstreamTimeout = []string{u.URL()}, timeout
		}
	}
	f("bad_request", 400, false, rawGet("X : y"), nil)
	f("body_too_large", 413, false, rawPost("Content-Length: "+decimal(bodyMax+1)), nil)
	f("uri_too_long", 414, false, rawTarget(longTarget(targetMax+1)), nil)
	f("expectation_failed", 417, false, rawGet("Expect: more"), nil)
	f("headers_too_large", 431, false, rawGet(numbered("X-", 200)...), nil)
	f("missing_api_key", 401, false, rawKey(), nil)
	f("malformed_api_key", 401, false, rawKey("Authorization: Bearer "+mistyped(token)), nil)
	f("invalid_api_key", 401, false, rawBearer(unknownToken), nil)
	f("too_many_failed_attempts", 429, false, rawBearer(unknownToken), func(s *setup) {
		s.attempts = func() (authfailures.State, bool) {
			return authfailures.State{
				Limit:     120,
				ResetAt:   instant.Of(now) + 60_000,
				ReleaseAt: instant.Of(now) + 500,
			}, false
		}
	})
	f("address_not_allowed", 403, false, rawBearer(elsewhereToken), nil)
	f("tenant_suspended", 403, false, rawBearer(suspendedToken), nil)
	f("quota_not_set", 403, false, rawBearer(limitlessToken), nil)
	f("key_banned", 429, false, rawBearer(bannedToken), nil)
	f("directory_unavailable", 503, false, rawGet(), func(s *setup) { s.isStale = true })
	f("invalid_api_key", 401, false, rawBearer(testToken), func(s *setup) { s.isStale = true })
	f("minute_quota_exceeded", 429, false, rawBearer(usedUpToken), nil)
	f("day_quota_exceeded", 429, false, rawGet(), deciding(1000, func(*quota.Verdict) {}))
	f("month_quota_exceeded", 429, false, rawGet(),
		deciding(1, func(v *quota.Verdict) { *v = verdict(plan.Limits{Minute: 1, Month: 1}, 1) }))
	for _, limits := range []plan.Limits{{Minute: 9}, {Day: 9}} {
		f("key_quota_exceeded", 429, false, rawGet(), deciding(0, func(v *quota.Verdict) {
			own := verdict(limits, 9)
			v.Join(&own)
		}))
	}
	f("limits_degraded", 429, false, rawGet(), deciding(1000, func(v *quota.Verdict) {
		v.Degraded, v.Usages[quota.Minute].RetryAt, v.Usages[quota.Day].RetryAt = true, v.At+1000, v.At+1000
	}))
	f("limits_unavailable", 503, false, rawGet(), func(s *setup) {
		s.take = func(quotas.Request) (quota.Verdict, error) { return quota.Verdict{}, errors.New("no answer") }
	})
	f("no_such_route", 404, true, rawTarget("/v1/cats"), nil)
	f("method_not_allowed", 405, true, rawStart("DELETE /v1/pets HTTP/1.1"), nil)
	f("insufficient_scope", 403, true, keyless("POST /v1/pets HTTP/1.1", "Authorization: Bearer "+readerToken), nil)
	f("operation_removed", 410, true, rawTarget("/v1/pets/7"), sunsetAt(now))
	f("invalid_parameter", 400, true, rawUsage("?since=1w"), nil)
	f("usage_unavailable", 503, true, rawUsage(""), func(s *setup) {
		s.statement = func() (keystore.Statement, error) { return keystore.Statement{}, errors.New("planted") }
	})
	f("upstream_unreachable", 502, true, rawGet(),
		func(s *setup) { s.Upstreams = []string{"unix:/nowhere/petsvc.sock"} })
	f("upstream_certificate", 502, true, rawGet(), func(s *setup) {
		secure := httptest.NewTLSServer(nil) // its authority is not known
		t.Cleanup(secure.Close)
		s.Upstreams = []string{secure.URL}
	})
	f("upstream_failed", 502, true, rawGet(),
		answering(noTimeout, func(net.Conn, upstreamRequest) bool { return false }))
	f("upstream_refused", 502, true, rawGet(),
		answering(noTimeout, saying("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")))
	f("upstream_timeout", 504, true, rawGet(),
		answering(time.Second, func(net.Conn, upstreamRequest) bool { return true }))
	f("internal", 500, false, rawGet(), func(s *setup) {
		s.take = func(quotas.Request) (quota.Verdict, error) { panic("planted") }
	})

	// A client that sends nothing within the read timeout gets no response. On a busy machine this
	// client can be so late: then it tries again.
	hurried := newRig(t, func(s *setup) { s.ReadTimeout = 10 * time.Millisecond })
	var late answer
	testkit.Eventually(t, patience, "a request that does not end is answered", func() bool {
		var err error
		late, err = hurried.dial(t).try("GET /v1/pets HTTP/1.1\r\n")
		return err == nil
	})
	check(hurried, late, "request_timeout", 408, false)

	// This code needs many requests before it.
	provoked["quota_polling"] = true
	r := newRig(t, nil)
	client := r.dial(t)
	testkit.Eventually(t, patience, "a report is refused", func() bool {
		got := client.ask(t, rawTarget("/v1/quota"))
		if err := got.checkFields(); err != nil ||
			got.Status == 429 &&
				!strings.Contains(got.Body, `"details":{"policy":"quota-polling","plan":"free","limit":10,"used":10,`) {
			t.Errorf("%v %s", err, got.Body)
		}
		return got.Code == "quota_polling"
	})

	// These codes need a second request: the first one holds the only place.
	crowded := func(code, second string, closes bool, change func(*setup)) {
		t.Helper()
		provoked[code] = true
		r := newRig(t, func(s *setup) {
			s.UpstreamTimeout = patience
			change(s)
		})
		slow := r.hold(t)
		slow.send(t, r.dial(t), rawSlow)
		must.Equal(t, r.metric(t, "petgate_gateway_requests_in_flight"), 1, "how many requests are being served")
		got := r.ask(t, second)
		got.expect(t, code, "503 "+code)
		must.Equal(t, got.Closes, closes, "whether %s closes", code)
		slow.end(t, 1)
		must.Equal(t, r.admitted.Load(), 1, "how many were charged, beside %s", code)
	}
	crowded("overloaded", rawGet(), true, func(s *setup) { s.ConcurrencyMax = 1 })
	crowded("overloaded", "", true, func(s *setup) { s.ConnectionsMax = 1 })
	crowded("upstream_overloaded", rawGet(), false, func(s *setup) { s.UpstreamConnsMax = 1 })

	// While one statement waits for the database, its tenant gets no other one, and other requests
	// are served.
	arrived, released := make(chan bool), make(chan bool)
	waiting := newRig(t, func(s *setup) {
		s.statement = func() (keystore.Statement, error) {
			arrived <- true
			<-released
			return oneRow()
		}
	})
	first := waiting.say(t, rawUsage(""))
	receive(t, arrived, "the database is asked")
	waiting.ask(t, rawGet()).expect(t, "another request", "200")
	check(waiting, waiting.ask(t, rawUsage("")), "usage_overloaded", 503, true)
	close(released)
	first.next(t).expect(t, "the first statement", "200")

	for _, code := range edge.Codes() {
		must.Equal(t, provoked[code], true, "whether %s was provoked", code)
	}
}

// A message says what is wrong with the request and what its client has to change. It has nothing
// of a token.
func TestMessages(t *testing.T) {
	client := newRig(t, func(s *setup) {
		s.changeEntries(func(e *directory.Entry) { e.GraceEndsAt = min(e.GraceEndsAt, instant.Of(now)) })
	}).dial(t)
	for request, want := range map[string]string{
		rawGet("X : y"):                                                           "a header field is malformed",
		rawGet(authorization):                                                     "only one Authorization",
		rawBearer(rotatedToken):                                                   "was rotated and has ended",
		rawBearer(unknownToken):                                                   "unknown",
		rawBearer(revokedToken):                                                   "revoked",
		rawBearer(expiredToken):                                                   "expired",
		rawBearer(testToken):                                                      "is a test key",
		rawKey(`Authorization: Bearer "` + token + `"`):                           "the API key is in quotes",
		rawKey("Authorization: Bearer  " + token):                                 "the API key contains a space",
		rawKey("Authorization: Bearer " + token + "x"):                            "a key has 38 characters after its prefix",
		rawKey("Authorization: Bearer sk-" + token[4:]):                           "a key begins with ptg_live_",
		rawBearer(foreignToken):                                                   "unknown, and keys of this API begin with ptg_live_",
		rawKey("X-Api-Key: " + token):                                             "not read from X-API-Key: send it as Authorization: Bearer",
		rawKey("Authorization: Basic dXNlcjpwdw=="):                               "Authorization has no Bearer token",
		rawBare("GET /v1/pets?limit=5&api_key="+token+" HTTP/1.1", "Host: a"):     "not read from the query",
		rawBare("GET /v1/pets?access_token="+unknownToken+" HTTP/1.1", "Host: a"): "not read from the query",
		rawKey(): "send your API key as Authorization",
		strings.Replace(rawReport(token), "GET", "POST", 1): "Its methods are GET, HEAD",
		rawTarget("/v1/pets/"):                              "it must not end in a slash",
		rawTarget("/v1/quota/"):                             "it must not end in a slash",
		rawTarget("/"):                                      "there is no such path\"",
		rawTarget("/v1/cats/"):                              "there is no such path\"",
		rawChunked(hexadecimal(bodyMax+1) + "\r\n"):         "the body is larger than " + decimal(bodyMax) + " bytes",
	} {
		got := client.ask(t, request)
		if !strings.Contains(got.Body, want) || apikey.IsIn([]byte(got.Body)) || got.field("x-key-expires") != "" {
			t.Errorf("%q: %d %s, want %q", request, got.Status, got.Body, want)
		}
		if isInvalid := got.Code == "invalid_api_key"; isInvalid != strings.HasSuffix(
			got.field("www-authenticate"), `error="invalid_token"`,
		) &&
			got.Code != "malformed_api_key" {
			t.Errorf("%q: WWW-Authenticate is %q", request, got.field("www-authenticate"))
		}
	}
}

// Refusals by a share are not the client's fault: they never ban a key. Nor do those of a client
// that is admitted in between. The same number of refusals by a limit bans it.
func TestRefusalOfAShareIsNoStrike(t *testing.T) {
	for _, c := range []struct{ degraded, admitsOthers, bans bool }{{true, false, false}, {false, true, false}, {false, false, true}} {
		var passed atomic.Int64
		r := newRig(t, func(s *setup) {
			s.BanRule = ban.Product
			s.BanRule.After = 3
			s.Clock = func() time.Time { return now.Add(time.Duration(passed.Load())) }
			deciding(60, func(v *quota.Verdict) {
				if v.Degraded = c.degraded; c.admitsOthers {
					v.Granted = passed.Load() / int64(1500*time.Millisecond) % 2
				}
			})(s)
		})
		client := r.dial(t)
		for range 16 {
			client.ask(t, rawGet())
			passed.Add(int64(1500 * time.Millisecond))
		}
		must.Equal(t, r.banned.Load() > 0, c.bans, "whether %+v bans", c)
	}
}

// Without Redis, the figures are the known use and what this gateway admits of its share.
func TestFiguresOfAShare(t *testing.T) {
	r := newRig(t, deciding(21, func(v *quota.Verdict) {
		v.Granted, v.Degraded = 1, true
		v.Usages[quota.Minute].Remaining, v.Usages[quota.Day].Remaining = 9, 4
	}))
	got := r.ask(t, rawGet())
	got.expect(t, "admitted by a share", "200")
	expectRemaining(t, got, 9, 4)
	if limit, left := got.field("x-ratelimit-limit"), got.field("x-ratelimit-remaining"); limit != "1000" ||
		left != "4" {
		t.Errorf("limit %s, remaining %s", limit, left)
	}
}
