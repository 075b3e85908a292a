package edge_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/core/ban"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

var dateLine = regexp.MustCompile(`Date: [^\r]*\r\n`)

// The whole answer, byte for byte but for its date.
func TestAnswers(t *testing.T) {
	const id = "X-Request-Id: golden-answer"
	f := func(request, want string, changes ...func(*setup)) {
		t.Helper()
		r := newRig(t, changes...)
		out, err := r.play([]byte(request))
		must.Do(t, err)
		for _, seen := range r.upstream.Seen() {
			must.Equal(t, seen.Fields["x-forwarded-for"][0], "unknown", "the client of a connection without addresses")
		}
		want = strings.ReplaceAll(strings.TrimPrefix(want, "\n"), "\n", "\r\n")
		must.Equal(t, dateLine.ReplaceAllString(string(out), ""), want, "the answer to %q", request)
	}
	f(rawStart("GET /v1/pets/7 HTTP/1.1", id), `
HTTP/1.1 200 OK
Content-Length: 2
X-RateLimit-Limit: 60
X-RateLimit-Remaining: 59
X-RateLimit-Reset: 1780315261
RateLimit-Policy: "minute";q=60;w=60, "day";q=1000;w=86400, "key-day";q=100;w=86400
RateLimit: "minute";r=59;t=61, "day";r=999;t=43200, "key-day";r=59;t=43200
X-Request-Id: golden-answer
X-Key-Expires: Mon, 01 Jun 2026 13:00:00 GMT
Deprecation: @1767225600
Sunset: Thu, 05 Dec 2030 00:00:00 GMT
Link: </v1/pets>; rel="successor-version"
X-Stability: beta
Content-Type: application/json

[]`, func(s *setup) {
		sunsetAt(time.Date(2030, 12, 5, 1, 0, 0, 0, time.FixedZone("", 3600)))(s)
		s.changeEntries(func(e *directory.Entry) { e.GraceEndsAt = instant.Of(now.Add(time.Hour)) })
		take := s.take
		s.take = func(a quotas.Request) (quota.Verdict, error) {
			v, err := take(a)
			ofKey := &v.Usages[quota.KeyDay]
			*ofKey = v.Usages[quota.Day]
			ofKey.Limit, ofKey.Remaining = 100, v.Usages[quota.Minute].Remaining // the tenant's is shown first
			return v, err
		}
	})
	f(rawKey("Authorization: Bearer "+usedUpToken, id), `
HTTP/1.1 429 Too Many Requests
Content-Length: 227
X-RateLimit-Limit: 1
X-RateLimit-Remaining: 0
X-RateLimit-Reset: 1780315261
RateLimit-Policy: "minute";q=1;w=60, "day";q=1000;w=86400
RateLimit: "minute";r=0;t=61, "day";r=999;t=43200
X-Request-Id: golden-answer
Content-Type: application/json
Retry-After: 61

{"code":"minute_quota_exceeded","message":"the quota of this minute is used up: wait for Retry-After",`+
		`"status":429,"details":{"policy":"minute","plan":"free","limit":1,"used":1,"resetAt":"2026-06-01T12:01:01Z","retryAfter":61}}`)
	f(rawKey(id), `
HTTP/1.1 401 Unauthorized
Content-Length: 104
X-RateLimit-Limit: 120
X-RateLimit-Remaining: 119
X-RateLimit-Reset: 1780315201
RateLimit-Policy: "failed-attempts";q=120;w=60
RateLimit: "failed-attempts";r=119;t=1
X-Request-Id: golden-answer
Content-Type: application/json
WWW-Authenticate: Bearer realm="petgate"

{"code":"missing_api_key","message":"send your API key as Authorization: Bearer <API_KEY>","status":401}`)
}

// A refusal says whether the gateway or the operator has banned the key, and has the operator's
// words.
func TestBanIsExplained(t *testing.T) {
	r := newRig(t)
	client := r.dial(t)
	for _, c := range []struct{ token, message, ban string }{
		{
			bannedToken,
			"the API key is banned, because it sent too many requests without waiting: wait for Retry-After",
			`"automatic","endsAt":"2026-06-01T12:01:00Z"`,
		},
		{
			scraperToken, "the operator has banned the API key: wait for Retry-After",
			`"manual","endsAt":"2026-06-01T12:01:00Z"`,
		},
		{
			unpaidToken, "the operator has banned the API key: Invoice 77 is unpaid.",
			`"manual","endsAt":"2026-06-01T12:01:00Z","notice":"Invoice 77 is unpaid."`,
		},
	} {
		want := `{"code":"key_banned","message":"` + c.message + `","status":429,` +
			`"details":{"policy":"ban","plan":"free",` +
			`"resetAt":"2026-06-01T12:01:00Z","retryAfter":60,"ban":{"kind":` + c.ban + `}}}`
		must.Equal(t, client.ask(t, rawKey("Authorization: Bearer "+c.token)).Body, want, "the answer to a banned key")
	}
}

// The refusal that begins a ban says that no strikes are left. The ban is longer than another
// gateway's before it, but not for an operator's.
func TestLastStrike(t *testing.T) {
	lastStrike(t, true, "2026-06-01T12:04:02Z")
	lastStrike(t, false, "2026-06-01T12:03:02Z")
}

func lastStrike(t *testing.T, isAutomatic bool, ends string) {
	t.Helper()
	var elapsed atomic.Int64
	r := newRig(t, func(s *setup) {
		s.BanRule = ban.Product
		s.BanRule.After = 2
		s.Clock = func() time.Time { return now.Add(time.Duration(elapsed.Load())) }
		s.changeEntries(func(e *directory.Entry) { e.BannedUntil, e.BanIsAutomatic = instant.Of(now), isAutomatic })
	})
	client := r.dial(t)
	elapsed.Store(int64(-time.Second))
	client.ask(t, rawBearer(usedUpToken)).expect(t, "during the other gateway's ban", "429 key_banned")
	elapsed.Store(int64(2 * time.Minute)) // the clock of Redis is behind
	for _, c := range []struct{ message, details string }{
		{". At most 2 more requests before then lead to a ban of the API key", `"retryAfter":61,"strikesUntilBan":2}}`},
		{". At most 1 more request before then leads to a ban of the API key", `"strikesUntilBan":1}}`},
		{". It is banned until Retry-After has passed", `"strikesUntilBan":0,"ban":{"kind":"automatic","endsAt":"` + ends + `"}}}`},
	} {
		got := client.ask(t, rawBearer(usedUpToken))
		if got.Code != "minute_quota_exceeded" || !strings.HasSuffix(got.Body, c.details) ||
			!strings.Contains(got.Body, c.message+`",`) {
			t.Errorf("%s, want %s and %s", got.Body, c.message, c.details)
		}
		elapsed.Add(int64(time.Second))
	}
	must.Equal(t, r.metric(t, "petgate_gateway_bans_total"), 1, "how many bans are counted")
}

// A client that may try again gets Retry-After in seconds, in whichever form the upstream sent it
// (RFC 9110, section 10.2.3).
func TestRetryAfterOfTheUpstream(t *testing.T) {
	for said, want := range map[string]string{
		"Retry-After: 7": "7", "Retry-After: soon": "1", "Retry-After: 0": "1", "X: y": "1",
		"Retry-After: Mon, 01 Jun 2026 12:00:30 GMT": "30",
		"Retry-After: Mon, 01 Jun 2026 11:00:00 GMT": "1",
	} {
		r := newRig(t, func(s *setup) { s.Clock = func() time.Time { return now } })
		client := r.dial(t)
		for _, status := range []int{409, 429, 503} {
			r.upstream.Answer(saying(fmt.Sprintf("HTTP/1.1 %d Later\r\n%s\r\nContent-Length: 0\r\n\r\n", status, said)))
			if got := client.ask(t, rawGet()); got.Status != status || got.field("retry-after") != want {
				t.Errorf("%s: got %d, %q, want %d, %s", said, got.Status, got.field("retry-after"), status, want)
			}
		}
	}
}

// Fields of the upstream reach the client as they are, however long they are.
func TestFieldsOfTheUpstream(t *testing.T) {
	fields := "content-type: a/b\r\nContent-Type: c/d\r\nSet-Cookie: e=f\r\nX-Empty: \r\n" +
		"X-Long: " + repeat("x", 10_000) + "\r\n"
	r := newRig(t)
	r.upstream.Answer(saying("HTTP/1.1 200 OK\r\n" + fields + "Content-Length: 0\r\n\r\n"))
	out := must.Get[[]byte](t)(r.play([]byte(rawGet())))
	must.Equal(t, strings.HasSuffix(string(out), "\r\n"+fields+"\r\n"), true, "whether %q ends with the fields", out)
}

// A response to HEAD has the Content-Length that the upstream sent, or none.
func TestLengthOfHead(t *testing.T) {
	for fields, want := range map[string]string{
		"Content-Length: 7": "7", "Content-Length: 0": "0", "Transfer-Encoding: chunked": "", "X: y": "",
	} {
		r := newRig(t)
		r.upstream.Answer(saying("HTTP/1.1 200 OK\r\n" + fields + "\r\n\r\n"))
		client := r.dial(t)
		for range 2 {
			got := client.ask(t, strings.Replace(rawGet(), "GET", "HEAD", 1))
			if got.Status != 200 || got.field("content-length") != want || got.field("transfer-encoding") != "" {
				t.Errorf("%s: got %d %v", fields, got.Status, got.Fields)
			}
		}
	}
}
