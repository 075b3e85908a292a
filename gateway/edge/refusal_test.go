package edge_test

import (
	"errors"
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
	"petgate/shared/keystore/usage"
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

// Every row of the table is provoked over a connection. Its response, its line of the access log,
// its metrics and its usage are what they must be.
func TestEveryRefusal(t *testing.T) {
	t.Parallel()
	provoked := map[string]bool{}
	check := func(got answer, want string) {
		t.Helper()
		_, code, _ := strings.Cut(want, " ")
		provoked[code] = true
		got.expect(t, code, want)
		hasDetails := strings.Contains(got.Body, `"details":{`)
		must.Equal(t, hasDetails, got.Status == 429 || code == "invalid_parameter", "details in %s", got.Body)
	}
	f := func(want, operation string, counts countedFor, request string, changes ...func(*setup)) {
		t.Helper()
		r := newRig(t, changes...)
		e := exchange{request: request, want: want, operation: operation, counts: counts}
		check(r.exchange(t, r.dial(t), e), want)
	}
	answering := func(timeout time.Duration, c func(net.Conn, upstreamRequest) bool) func(*setup) {
		return func(s *setup) {
			u := newRawUpstream(t)
			u.Answer(c)
			s.Upstreams, s.UpstreamTimeout = []string{u.URL()}, timeout
		}
	}
	f("400 bad_request", "", nobody, rawGet("X : y"))
	f("413 body_too_large", "", named, rawPost("Content-Length: "+decimal(bodyMax+1)))
	f("414 uri_too_long", "", named, rawTarget(longTarget(targetMax+1)))
	f("417 expectation_failed", "", named, rawGet("Expect: more"))
	f("431 headers_too_large", "", named, rawGet(numbered("X-", 200)...))
	f("401 missing_api_key", "", nobody, rawKey())
	f("401 malformed_api_key", "", nobody, rawKey("Authorization: Bearer "+mistyped(token)))
	f("401 invalid_api_key", "", nobody, rawBearer(unknownToken))
	f("429 too_many_failed_attempts", "", nobody, rawBearer(unknownToken), func(s *setup) {
		s.attempts = func() (authfailures.State, bool) {
			return authfailures.State{
				Limit:     120,
				ResetAt:   instant.Of(now) + 60_000,
				ReleaseAt: instant.Of(now) + 500,
			}, false
		}
	})
	f("403 address_not_allowed", "", named, rawBearer(elsewhereToken))
	f("403 tenant_suspended", "", named, rawBearer(suspendedToken))
	f("403 quota_not_set", "", named, rawBearer(limitlessToken))
	f("429 key_banned", "", named, rawBearer(bannedToken))
	f("503 directory_unavailable", "", nobody, rawGet(), func(s *setup) { s.isStale = true })
	f("401 invalid_api_key", "", named, rawBearer(testToken), func(s *setup) { s.isStale = true })
	f("429 minute_quota_exceeded", "", metered, rawBearer(usedUpToken))
	f("429 day_quota_exceeded", "", metered, rawGet(), deciding(1000, func(*quota.Verdict) {}))
	f("429 month_quota_exceeded", "", metered, rawGet(),
		deciding(1, func(v *quota.Verdict) { *v = verdict(plan.Limits{Minute: 1, Month: 1}, 1) }))
	for _, limits := range []plan.Limits{{Minute: 9}, {Day: 9}} {
		f("429 key_quota_exceeded", "", metered, rawGet(), deciding(0, func(v *quota.Verdict) {
			own := verdict(limits, 9)
			v.Join(&own)
		}))
	}
	f("429 limits_degraded", "", metered, rawGet(), deciding(1000, func(v *quota.Verdict) {
		v.Degraded, v.Usages[quota.Minute].RetryAt, v.Usages[quota.Day].RetryAt = true, v.At+1000, v.At+1000
	}))
	f("503 limits_unavailable", "", metered, rawGet(), func(s *setup) {
		s.take = func(quotas.Request) (quota.Verdict, error) { return quota.Verdict{}, errors.New("no answer") }
	})
	f("404 no_such_route", "", charged, rawTarget("/v1/cats"))
	f("405 method_not_allowed", "", charged, rawStart("DELETE /v1/pets HTTP/1.1"))
	f("403 insufficient_scope", "createPet", charged,
		strings.Replace(rawPost("Content-Length: 0"), token, readerToken, 1))
	f("410 operation_removed", "getPet", charged, rawTarget("/v1/pets/7"), sunsetAt(now))
	f("400 invalid_parameter", "getUsage", charged, rawUsage("?since=1w"))
	f("503 usage_unavailable", "getUsage", charged, rawUsage(""), func(s *setup) {
		s.statement = func() (usage.Statement, error) { return usage.Statement{}, errors.New("planted") }
	})
	f("502 upstream_unreachable", "listPets", charged, rawGet(),
		func(s *setup) { s.Upstreams = []string{"unix:/nowhere/petsvc.sock"} })
	f("502 upstream_certificate", "listPets", charged, rawGet(), func(s *setup) {
		secure := httptest.NewTLSServer(nil) // its authority is not known
		t.Cleanup(secure.Close)
		s.Upstreams = []string{secure.URL}
	})
	f("502 upstream_failed", "listPets", charged, rawGet(),
		answering(noTimeout, func(net.Conn, upstreamRequest) bool { return false }))
	f("502 upstream_refused", "listPets", charged, rawGet(),
		answering(noTimeout, saying("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")))
	f("504 upstream_timeout", "listPets", charged, rawGet(),
		answering(time.Second, func(net.Conn, upstreamRequest) bool { return true }))
	f("500 internal", "", metered, rawGet(), func(s *setup) {
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
	check(late, "408 request_timeout")

	// This code needs many requests before it.
	provoked["quota_polling"] = true
	r := newRig(t)
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
		s.statement = func() (usage.Statement, error) {
			arrived <- true
			<-released
			return oneRow()
		}
	})
	first := waiting.say(t, rawUsage(""))
	receive(t, arrived, "the database is asked")
	waiting.ask(t, rawGet()).expect(t, "another request", "200")
	overloaded := exchange{request: rawUsage(""), want: "503 usage_overloaded", operation: "getUsage", counts: charged}
	waiting.awaitLines(t, 1)
	check(waiting.exchange(t, waiting.dial(t), overloaded), overloaded.want)
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
	const inQuery = "not read from the query"
	for request, want := range map[string]string{
		rawGet("X : y"):                                                    "a header field is malformed",
		rawGet(authorization):                                              "only one Authorization",
		rawBearer(rotatedToken):                                            "was rotated and has ended",
		rawBearer(unknownToken):                                            "unknown",
		rawBearer(revokedToken):                                            "revoked",
		rawBearer(expiredToken):                                            "expired",
		rawBearer(testToken):                                               "is a test key",
		rawKey(`Authorization: Bearer "` + token + `"`):                    "the API key is in quotes",
		rawKey("Authorization: Bearer  " + token):                          "the API key contains a space",
		rawKey("Authorization: Bearer " + token + "x"):                     "a key has 38 characters after its prefix",
		rawKey("Authorization: Bearer sk-" + token[4:]):                    "a key begins with ptg_live_",
		rawBearer(foreignToken):                                            "and keys of this API begin with ptg_live_",
		rawKey("X-Api-Key: " + token):                                      "not read from X-API-Key: send it as",
		rawKey("Authorization: Basic dXNlcjpwdw=="):                        "Authorization has no Bearer token",
		keyless("GET /v1/pets?limit=5&api_key=" + token + " HTTP/1.1"):     inQuery,
		keyless("GET /v1/pets?access_token=" + unknownToken + " HTTP/1.1"): inQuery,
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
		isInvalid := got.Code == "invalid_api_key" || got.Code == "malformed_api_key"
		challenge := got.field("www-authenticate")
		must.Equal(t, strings.HasSuffix(challenge, `error="invalid_token"`), isInvalid, "the challenge to %q", request)
	}
}

// Refusals by a share are not the client's fault: they never ban a key. Nor do those of a client
// that is admitted in between. The same number of refusals by a limit bans it.
func TestRefusalOfAShareIsNoStrike(t *testing.T) {
	for _, c := range []struct{ degraded, admitsOthers, bans bool }{
		{degraded: true},
		{admitsOthers: true},
		{bans: true},
	} {
		var passed atomic.Int64
		r := newRig(t, func(s *setup) {
			s.BanRule = ban.Product
			s.BanRule.After = 3
			s.Clock = func() time.Time { return now.Add(time.Duration(passed.Load())) }
			deciding(60, func(v *quota.Verdict) {
				v.Degraded = c.degraded
				if c.admitsOthers {
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
	must.Equal(t, got.field("x-ratelimit-limit")+" "+got.field("x-ratelimit-remaining"), "1000 4", "the older fields")
}
