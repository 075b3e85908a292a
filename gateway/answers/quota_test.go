package answers

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func TestReport(t *testing.T) {
	at := instant.Of(now)
	q := Quota{
		Entry: &directory.Entry{
			Key: id.Key{7}, Tenant: id.Tenant{8}, Name: `"ci"`, Environment: apikey.Live, Scopes: "pets:read",
			Terms: directory.Terms{Plan: "free"},
			Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		},
		Hint: "abcd", Now: at,
		Verdict: quota.Verdict{
			At: at - 500,
			Usages: [quota.Policies]quota.Usage{
				quota.Minute: {Limit: 60, Used: 60, ResetAt: at + 60_250, RetryAt: at + 1000},
				quota.Day:    {Limit: 1000, Used: 60, Remaining: 940, ResetAt: at - 2000},
			},
		},
	}
	f := func(want string) {
		t.Helper()
		if got := q.Report(); string(got.Body) != want || got.Status != 200 || got.Outcome != "report" {
			t.Errorf("got  %s\nwant %s", got.Body, want)
		}
	}
	const policies = `"policies":[` +
		`{"name":"minute","limit":60,"used":60,"remaining":0,"window":60,` +
		`"resetAt":"2026-06-01T12:01:01Z","nextAt":"2026-06-01T12:00:02Z"},` +
		`{"name":"day","limit":1000,"used":60,"remaining":940,"window":86400,"resetAt":"2026-06-01T12:00:00Z","nextAt":null}],` +
		`"key":{"id":"key_0w00000000000000","name":"\"ci\"","hint":"abcd","environment":"live","scopes":["pets:read"],`
	f(`{"plan":"free","tenant":"ten_1000000000000000","degraded":false,` + policies +
		`"expiresAt":null,"endsAt":null,"replacedBy":null},"ban":null,"suspended":false,"strikesUntilBan":null}`)
	q.Entry.ExpiresAt, q.Entry.GraceEndsAt, q.Entry.ReplacedBy, q.Entry.Suspended = at+1, at+60_000, id.Key{9}, true
	q.Entry.BannedUntil, q.Ban = at+30_000, api.Ban{EndsAt: at + 30_000, Notice: "Invoice 77 is unpaid."}
	q.StrikesLeft, q.Verdict.Degraded, q.Verdict.Usages[quota.Day].Remaining = 3, true, 7
	f(`{"plan":"free","tenant":"ten_1000000000000000","degraded":true,` + strings.Replace(policies, "940", "7", 1) +
		`"expiresAt":"2026-06-01T12:00:01Z","endsAt":"2026-06-01T12:01:00Z","replacedBy":"key_1400000000000000"},` +
		`"ban":{"kind":"manual","endsAt":"2026-06-01T12:00:30Z","notice":"Invoice 77 is unpaid."},"suspended":true,"strikesUntilBan":3}`)

	// Only policies that are set are reported, a month with its own length.
	q.Entry.MonthStarts = 15
	q.Verdict.Usages = [quota.Policies]quota.Usage{
		quota.Month:  {Limit: 5000, Used: 60, Remaining: 4940, ResetAt: instant.Of(now.Add(14 * day).Truncate(day))},
		quota.KeyDay: {Limit: 9, Used: 9, ResetAt: at + 43_200_000, RetryAt: at + 43_200_000},
	}
	q.Now = at + 30_000 // the ban ends now
	got := string(q.Report().Body)
	want := `"policies":[{"name":"month","limit":5000,"used":60,"remaining":4940,"window":2678400,` +
		`"resetAt":"2026-06-15T00:00:00Z","nextAt":null},` +
		`{"name":"key-day","limit":9,"used":9,"remaining":0,"window":86400,` +
		`"resetAt":"2026-06-02T00:00:00Z","nextAt":"2026-06-02T00:00:31Z"}]`
	if !strings.Contains(got, want) || !strings.Contains(got, `"ban":null`) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A key may ask ten times at once, and then once a second. Other keys do not wait for it.
func TestPolls(t *testing.T) {
	p, at := NewPolls(), instant.Of(now)
	for range pollBurst {
		_, isAllowed := p.Allow(id.Key{1}, at)
		must.Equal(t, isAllowed, true, "whether the key may ask")
	}
	state, isAllowed := p.Allow(id.Key{1}, at+500)
	must.Equal(t, isAllowed, false, "whether the key may ask once more")
	must.Equal(t, state, quota.Usage{Limit: 10, Used: 10, ResetAt: at + 10_000, RetryAt: at + 1000}, "the state")
	_, isAllowed = p.Allow(id.Key{2}, at)
	must.Equal(t, isAllowed, true, "whether another key may ask")
}
