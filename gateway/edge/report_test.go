package edge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"petgate/shared/core/ban"
)

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
		ID, Name, Hint, Environment string
		ReplacedBy                  *string
		Scopes                      []string
		ExpiresAt, EndsAt           *time.Time
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
	return rawBare("GET /v1/quota HTTP/1.1", "Host: a", "Authorization: Bearer "+token)
}

// readReport reads a report, and compares it with the headers of the same response.
func readReport(t rapid.TB, got answer) (r report) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.Body), &r); err != nil || got.Status != 200 || len(r.Policies) != 2 && len(r.Policies) != 0 {
		t.Fatalf("%d %s: %v", got.Status, got.Body, err)
	}
	if err := got.checkFields(); err != nil {
		t.Error(err)
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

func expectRemaining(t rapid.TB, got answer, minute, day int64) {
	t.Helper()
	m, d := remaining(t, got)
	if m != minute || d != day {
		t.Errorf("%d: %s, want r=%d and r=%d", got.Status, got.field("ratelimit"), minute, day)
	}
}

// remaining reads the field RateLimit.
func remaining(t rapid.TB, got answer) (minute, day int64) {
	t.Helper()
	var skip int64
	if _, err := fmt.Sscanf(got.field("ratelimit"), `"minute";r=%d;t=%d, "day";r=%d;t=%d`, &minute, &skip, &day, &skip); err != nil {
		t.Fatalf("RateLimit is %q: %v", got.field("ratelimit"), err)
	}
	return minute, day
}

// Every valid key gets a report, and no report costs anything.
func TestReport(t *testing.T) {
	r := newRig(t, func(s *setup) { s.BanRule = ban.Product })
	client := r.dial(t)
	for name, c := range map[string]struct {
		token, plan string
		check       func(report) bool
	}{
		"good":      {token, "free", func(r report) bool { return r.Ban == nil && !r.Suspended && *r.StrikesUntilBan == 60 }},
		"banned":    {bannedToken, "free", func(r report) bool { return r.Ban.EndsAt.Equal(now.Add(time.Minute)) && r.Ban.Kind == "automatic" }},
		"unpaid":    {unpaidToken, "free", func(r report) bool { return r.Ban.Kind == "manual" && r.Ban.Notice == "Invoice 77 is unpaid." }},
		"suspended": {suspendedToken, "free", func(r report) bool { return r.Suspended }},
		"rotated": {rotatedToken, "free", func(r report) bool {
			return r.Key.EndsAt.Equal(now.Add(time.Hour)) && *r.Key.ReplacedBy == "key_0400000000000000"
		}},
		"limitless": {limitlessToken, "free", func(r report) bool { return len(r.Policies) == 0 }},
	} {
		got := client.ask(t, rawReport(c.token))
		report := readReport(t, got)
		if !c.check(report) || report.Key.Hint != c.token[len(c.token)-4:] || report.Key.Environment != "live" || report.Plan != c.plan || report.Key.Name != "ci" ||
			!strings.HasPrefix(report.Key.ID, "key_") || !strings.HasPrefix(report.Tenant, "ten_") || report.Degraded {
			t.Errorf("%s: %s", name, got.Body)
		}
	}
	for token, want := range map[string]int{unknownToken: 401, revokedToken: 401, expiredToken: 401, testToken: 401, elsewhereToken: 403} {
		if got := client.ask(t, rawReport(token)); got.Status != want {
			t.Errorf("%d %s, want %d", got.Status, got.Body, want)
		}
	}
	if got := client.ask(t, strings.Replace(rawReport(token), "GET", "HEAD", 1)); got.Status != 200 || got.Body != "" || got.field("content-length") == "0" {
		t.Errorf("HEAD: %d %v %s", got.Status, got.Fields, got.Body)
	}
	if n := r.admitted.Load(); n != 0 || len(r.upstream.Seen()) != 0 {
		t.Errorf("%d requests were charged", n)
	}
	if got := client.ask(t, strings.Replace(rawReport(token), "GET", "POST", 1)); got.Status != 405 || got.field("allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", got.Status, got.Fields)
	}
	r.awaitLines(t, 13)
	lines := r.accessLog.String()
	if strings.Count(lines, `"outcome":"report"`) != 7 || !strings.Contains(lines, `"operation":"getQuota"`) {
		t.Errorf("the access log has %s", lines)
	}
}
