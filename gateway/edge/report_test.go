package edge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/testkit/must"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// report is the body of a report.
type report struct {
	Plan, Tenant string
	Degraded     bool
	Policies     []struct {
		Name                           string
		Limit, Used, Remaining, Window int64
		ResetAt                        time.Time
		NextAt                         *time.Time
	}
	Key struct {
		Hint       string
		ReplacedBy *string
		EndsAt     *time.Time
	}
	Ban *struct {
		Kind   string
		EndsAt time.Time
		Notice string
	}
	Suspended       bool
	StrikesUntilBan *int
}

func rawReport(token string) string {
	return keyless("GET /v1/quota HTTP/1.1", "Authorization: Bearer "+token)
}

// readReport reads a report, and compares it with the headers of the same response.
func readReport(t rapid.TB, got answer) (r report) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.Body), &r); err != nil || got.Status != 200 ||
		len(r.Policies) != 2 && len(r.Policies) != 0 {
		t.Fatalf("%d %s: %v", got.Status, got.Body, err)
	}
	if len(r.Policies) == 0 { // without limits
		return r
	}
	minute, day := r.Policies[0], r.Policies[1]
	policies := fmt.Sprintf(`"minute";q=%d;w=%d, "day";q=%d;w=%d`, minute.Limit, minute.Window, day.Limit, day.Window)
	if got.field("ratelimit-policy") != policies || got.field("x-stability") != "beta" {
		t.Errorf("the headers are %v, the report is %s", got.Fields, got.Body)
	}
	expectRemaining(t, got, minute.Remaining, day.Remaining)
	tight := minute
	if day.Remaining <= minute.Remaining {
		tight = day
	}
	if reset := fmt.Sprint(tight.ResetAt.Unix()); got.field("x-ratelimit-reset") != reset {
		t.Errorf("X-RateLimit-Reset is %s, the report is %s", got.field("x-ratelimit-reset"), got.Body)
	}
	return r
}

// expectRemaining compares the field RateLimit with what must remain.
func expectRemaining(t rapid.TB, got answer, minute, day int64) {
	t.Helper()
	var m, d, skip int64
	_, err := fmt.Sscanf(got.field("ratelimit"), `"minute";r=%d;t=%d, "day";r=%d;t=%d`, &m, &skip, &d, &skip)
	if err != nil || m != minute || d != day {
		t.Errorf("%d: %s, want r=%d and r=%d: %v", got.Status, got.field("ratelimit"), minute, day, err)
	}
}

// Every valid key gets a report, and no report costs anything.
func TestReport(t *testing.T) {
	r := newRig(t, func(s *setup) { s.BanRule = ban.Product })
	client := r.dial(t)
	for token, check := range map[string]func(report) bool{
		token: func(r report) bool { return r.Ban == nil && !r.Suspended && *r.StrikesUntilBan == 60 },
		bannedToken: func(r report) bool {
			return r.Ban.EndsAt.Equal(now.Add(time.Minute)) && r.Ban.Kind == "automatic"
		},
		unpaidToken: func(r report) bool {
			return r.Ban.Kind == "manual" && r.Ban.Notice == "Invoice 77 is unpaid."
		},
		suspendedToken: func(r report) bool { return r.Suspended },
		rotatedToken: func(r report) bool {
			return r.Key.EndsAt.Equal(now.Add(time.Hour)) && *r.Key.ReplacedBy == "key_0400000000000000"
		},
		limitlessToken: func(r report) bool { return len(r.Policies) == 0 },
	} {
		e := exchange{request: rawReport(token), want: "200", operation: "getQuota", counts: named, outcome: "report"}
		got := r.exchange(t, client, e)
		report := readReport(t, got)
		if !check(report) || report.Key.Hint != token[len(token)-4:] || report.Plan != "free" || report.Tenant == "" ||
			report.Degraded {
			t.Errorf("%s", got.Body)
		}
	}
	for token, want := range map[string]string{
		unknownToken:   "401 invalid_api_key",
		revokedToken:   "401 invalid_api_key",
		testToken:      "401 invalid_api_key",
		elsewhereToken: "403 address_not_allowed",
	} {
		client.ask(t, rawReport(token)).expect(t, "no report", want)
	}
	if got := client.ask(t, strings.Replace(rawReport(token), "GET", "HEAD", 1)); got.Status != 200 || got.Body != "" ||
		got.field("content-length") == "0" {
		t.Errorf("HEAD: %d %v %s", got.Status, got.Fields, got.Body)
	}
	must.Equal(t, len(r.upstream.Seen()), 0, "how many requests the upstream saw")
	got := client.ask(t, strings.Replace(rawReport(token), "GET", "POST", 1))
	must.Equal(t, got.field("allow"), "GET, HEAD", "the methods")
}

// If nobody can say what is left, a report says that nothing is.
func TestReportWithoutQuotas(t *testing.T) {
	r := newRig(t, func(s *setup) { s.current = errors.New("planted") })
	got := r.ask(t, rawReport(token)).Body
	isTold := strings.Contains(got, `"degraded":true`) && strings.Count(got, `"remaining":0`) == 2 &&
		strings.Count(got, `"nextAt":null`) == 1
	must.Equal(t, isTold, true, "that nothing is left: %s", got)
}

// withQuotas changes a rig so that it has real quotas, bans, and a clock.
func withQuotas(t testing.TB, limits func(id.Key) plan.Limits, clock func() time.Time) func(*setup) {
	t.Helper()
	q := must.Get[quotas.Quotas](t)(
		quotas.Open(t.Context(), quotas.Config{Clock: clock, Metrics: prometheus.NewRegistry()}),
	)
	t.Cleanup(func() { must.Do(t, q.Close(context.Background())) })
	var bans sync.Map // id.Key → instant.Millis
	return func(s *setup) {
		s.Quotas, s.Clock, s.BanRule = q, clock, ban.Product
		s.changeEntries(func(e *directory.Entry) {
			if until, banned := bans.Load(e.Key); banned {
				e.BannedUntil, e.BanIsAutomatic = until.(instant.Millis), true
			}
			e.Limits = limits(e.Key)
		})
		s.ban = func(k id.Key, until instant.Millis) { bans.Store(k, until) }
	}
}

func entryOf(token string) directory.Entry { return entries[apikey.Sum([]byte(token))] }

// strikeWeight is by how much a strike lowers strikesUntilBan, at most, if the minute's limit is
// 60: 60 strikes ban, but 30 do of connections that were told.
const strikeWeight = 2

// expectNext compares a report with the next response. at is the time of both.
func expectNext(t rapid.TB, r report, next answer, at time.Time) {
	t.Helper()
	var body struct {
		Code    string
		Details struct {
			RetryAfter      int64
			StrikesUntilBan int
		}
	}
	if next.Status != 200 {
		if err := json.Unmarshal([]byte(next.Body), &body); err != nil {
			t.Fatalf("%s: %v", next.Body, err)
		}
	}
	minute, day := r.Policies[0], r.Policies[1]
	nextAt := at
	for _, one := range []*time.Time{minute.NextAt, day.NextAt} {
		if one != nil && one.After(nextAt) {
			nextAt = *one
		}
	}
	left := *r.StrikesUntilBan
	switch {
	case r.Ban != nil:
		if nextAt.Before(r.Ban.EndsAt) {
			nextAt = r.Ban.EndsAt
		}
		must.Equal(t, body.Code, "key_banned", "the next response, while the key is banned until %v", nextAt)
	case nextAt.Equal(at):
		if next.Status != 200 && next.Status != 404 {
			t.Fatalf("%d and %d remain; the next response is %d %s", minute.Remaining, day.Remaining, next.Status,
				next.Body)
		}
		expectRemaining(t, next, minute.Remaining-1, day.Remaining-1)
		return
	case body.Details.StrikesUntilBan == 0: // the next one is the last strike
		if next.Status != 429 || left > strikeWeight {
			t.Fatalf("%d strikes are left; the next response is %d %s", left, next.Status, next.Body)
		}
		return
	default:
		if next.Status != 429 || body.Details.StrikesUntilBan > left ||
			body.Details.StrikesUntilBan < left-strikeWeight {
			t.Fatalf("the next request is admitted at %v, %d strikes are left; the next response is %d %s", nextAt,
				left, next.Status, next.Body)
		}
		expectRemaining(t, next, minute.Remaining, day.Remaining)
	}
	// Both are rounded up to a second.
	promised := at.Add(time.Duration(body.Details.RetryAfter) * time.Second)
	if off := promised.Sub(nextAt).Abs(); off >= time.Second {
		t.Fatalf("the report says %v; at %v the next response has Retry-After %d", nextAt, at, body.Details.RetryAfter)
	}
}

// Whatever happened before, a report says what the next request will get: how many remain, when the
// next one is admitted, and how many strikes are left.
func TestReportAgreesWithTheNextResponse(t *testing.T) {
	var at atomic.Int64
	clock := func() time.Time { return instant.Millis(at.Load()).Time() }
	at.Store(int64(instant.Of(now)))
	tokens := []string{token, usedUpToken, readerToken}
	limits := map[id.Key]plan.Limits{
		entryOf(tokens[0]).Key: {Minute: 60, Day: 1000},
		entryOf(tokens[1]).Key: {Minute: 1, Day: 1000},
		entryOf(tokens[2]).Key: {Minute: 60, Day: 30},
	}
	r := newRig(t, withQuotas(t, func(k id.Key) plan.Limits { return limits[k] }, clock))
	client := r.dial(t)
	seen := map[string]int{}
	get := func(t rapid.TB, token, target string) answer {
		return client.ask(t, keyless("GET "+target+" HTTP/1.1", "Authorization: Bearer "+token))
	}
	rapid.Check(t, func(t *rapid.T) {
		at.Add(int64(rapid.SampledFrom([]int{0, 61_000, 90_000_000}).Draw(t, "pause")))
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			mine := rapid.SampledFrom(tokens).Draw(t, "key")
			pace := rapid.SampledFrom([]int64{0, 10, 1500}).Draw(t, "pace")
			target := rapid.SampledFrom([]string{"/v1/pets", "/v1/cats"}).Draw(t, "target")
			for range rapid.SampledFrom([]int{0, 1, 5, 40, 70}).Draw(t, "requests") {
				get(t, mine, target)
				at.Add(pace)
			}
			at.Add(rapid.Int64Range(1000, 30_000).Draw(t, "wait"))
			report := readReport(t, get(t, mine, "/v1/quota"))
			next := get(t, mine, target)
			expectNext(t, report, next, clock())
			seen[next.Code]++
		}
	})
	for _, code := range []string{"", "minute_quota_exceeded", "day_quota_exceeded", "key_banned"} {
		if seen[code] == 0 {
			t.Errorf("no report before a response with code %q: %v", code, seen)
		}
	}
}

// A client that calls on after a 429 is banned within 60 s, with one connection or a new one for
// each request. It calls twice a second. The first two refusals may cross the 429. Then 30 strikes
// ban it on one connection, and 40, as many as the limit, if its connections say nothing about it.
func TestClientThatIgnoresIsBanned(t *testing.T) {
	f := func(name string, strikes int64, hangsUp bool, request string, trusted ...netip.Prefix) {
		t.Helper()
		var passed atomic.Int64 // ms
		clock := func() time.Time { return (instant.Of(now) + instant.Millis(passed.Load())).Time() }
		limits := func(id.Key) plan.Limits { return plan.Limits{Minute: 40, Day: 1_000_000} }
		r := newRig(t, withQuotas(t, limits, clock), func(s *setup) { s.TrustedProxies = trusted })
		client := r.dial(t)
		told := int64(0)
		for ; ; passed.Add(500) {
			got := client.ask(t, request)
			if got.Status == 429 && told == 0 {
				told = passed.Load()
			}
			if got.Code == "key_banned" {
				break
			}
			if passed.Load() > 80_000 {
				t.Fatalf("%s: no ban: %d %s", name, got.Status, got.Body)
			}
			if hangsUp {
				client.close()
			}
		}
		// A connection that has just been closed may still be open for the gateway.
		if refused := (passed.Load() - told) / 500; refused < 2+strikes || refused > 2+strikes && !hangsUp ||
			refused > 120 {
			t.Errorf("%s: banned after %d refusals, want 2 and %d", name, refused, strikes)
		}
	}
	f("one connection", 30, false, rawGet())
	f("a new connection for each request", 40, true, rawGet())
	f("Connection: close", 40, true, rawGet("Connection: close"))
	f("behind a proxy", 40, false, rawGet("X-Forwarded-For: 192.0.2.1"), loopback)
}
