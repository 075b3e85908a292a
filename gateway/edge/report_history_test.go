package edge_test

import (
	"encoding/json"
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

// newQuotaRig returns a rig with real quotas, bans, and a clock.
func newQuotaRig(t testing.TB, cfg quotas.Config, limits func(id.Key) plan.Limits, clock func() time.Time, change ...func(*setup)) *rig {
	t.Helper()
	cfg.Clock, cfg.Metrics = clock, prometheus.NewRegistry()
	q, err := quotas.Open(t.Context(), cfg)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	var bans sync.Map // id.Key → instant.Millis
	return newRig(t, func(s *setup) {
		s.Quotas, s.Clock, s.BanRule = q, clock, ban.Product
		s.changeEntries(func(e *directory.Entry) {
			if until, banned := bans.Load(e.Key); banned {
				e.BannedUntil, e.BanIsAutomatic = until.(instant.Millis), true
			}
			e.Limits = limits(e.Key)
		})
		s.ban = func(k id.Key, until instant.Millis) { bans.Store(k, until) }
		for _, change := range change {
			change(s)
		}
	})
}

func keyOf(token string) id.Key { return entries[apikey.Sum([]byte(token))].Key }

// strikeWeight is by how much a strike lowers strikesUntilBan, at most, if the minute's limit is 60: 60 strikes ban, but 30 do of
// connections that were told.
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
		if body.Code != "key_banned" {
			t.Fatalf("the key is banned until %v; the next response is %d %s", nextAt, next.Status, next.Body)
		}
	case nextAt.Equal(at):
		if next.Status != 200 && next.Status != 404 {
			t.Fatalf("%d and %d remain; the next response is %d %s", minute.Remaining, day.Remaining, next.Status, next.Body)
		}
		expectRemaining(t, next, minute.Remaining-1, day.Remaining-1)
		return
	case body.Details.StrikesUntilBan == 0: // the next one is the last strike
		if next.Status != 429 || left > strikeWeight {
			t.Fatalf("%d strikes are left; the next response is %d %s", left, next.Status, next.Body)
		}
		return
	default:
		if next.Status != 429 || body.Details.StrikesUntilBan > left || body.Details.StrikesUntilBan < left-strikeWeight {
			t.Fatalf("the next request is admitted at %v, %d strikes are left; the next response is %d %s", nextAt, left, next.Status, next.Body)
		}
		expectRemaining(t, next, minute.Remaining, day.Remaining)
	}
	// Both are rounded up to a second.
	promised := at.Add(time.Duration(body.Details.RetryAfter) * time.Second)
	if off := promised.Sub(nextAt).Abs(); off >= time.Second {
		t.Fatalf("the report says %v; at %v the next response has Retry-After %d", nextAt, at, body.Details.RetryAfter)
	}
}

// Whatever happened before, a report says what the next request will get: how many remain, when the next one is admitted, and how
// many strikes are left.
func TestReportAgreesWithTheNextResponse(t *testing.T) {
	var at atomic.Int64
	clock := func() time.Time { return instant.Millis(at.Load()).Time() }
	at.Store(int64(instant.Of(now)))
	tokens := []string{token, usedUpToken, readerToken}
	r := newQuotaRig(t, quotas.Config{}, func(k id.Key) plan.Limits {
		return map[id.Key]plan.Limits{
			keyOf(tokens[0]): {Minute: 60, Day: 1000}, keyOf(tokens[1]): {Minute: 1, Day: 1000}, keyOf(tokens[2]): {Minute: 60, Day: 80},
		}[k]
	}, clock)
	client := r.dial(t)
	seen := map[string]int{}
	get := func(t rapid.TB, token, target string) answer {
		return client.ask(t, rawBare("GET "+target+" HTTP/1.1", "Host: a", "Authorization: Bearer "+token))
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
			seen[codeOf(next)]++
		}
	})
	for _, code := range []string{"", "minute_quota_exceeded", "day_quota_exceeded", "key_banned"} {
		if seen[code] == 0 {
			t.Errorf("no report before a response with code %q: %v", code, seen)
		}
	}
}
