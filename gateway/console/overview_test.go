package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// The figures of the overview and of the rankings are those of the stored usage, which keyadmin
// usage prints: for all, for each tenant, and for each reason of a refusal.
func TestOverviewIsTheUsage(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		s := newSiteOn(t, url)
		now := instant.Of(time.Now())
		clock := now.Truncate(time.Hour).Add(30 * time.Minute)
		s.console.cfg.Clock = clock.Time
		names := map[id.Tenant]string{}
		odd := map[string]int64{"tenant-00": 99, "tenant-01": 100, "tenant-02": 0, "tenant-04": 951}
		s.console.cfg.Quota = func(_ context.Context, tenant id.Tenant) (v quota.Verdict, err error) {
			v.Usages[quota.Minute] = quota.Usage{Limit: 60, Used: 5}
			v.Usages[quota.Day] = quota.Usage{Limit: 1000, Used: 950}
			if used, isOdd := odd[names[tenant]]; isOdd {
				v.Usages[quota.Day].Used = used
			}
			return v, operate.Either(names[tenant] == "tenant-02", ErrUnknownTenant, nil)
		}
		r := s.gateway("gw-8")
		var rows []usage.Row
		want := map[string]int64{} // requests of 24 hours by outcome
		var closed [2]int64        // requests in the 23 hours before this one, and in the same hours of the day before
		for i := range 12 {
			made := s.newTenant(keystore.TenantSpec{Name: fmt.Sprintf("tenant-%02d", i), Plan: "free"})
			names[made.ID] = made.Name
			for h := range 49 { // the last 24 hours, the 24 before, and an hour that is too old
				for _, outcome := range []string{"ok", "minute_quota_exceeded", "upstream_timeout", "report"} {
					n := int64(1 + i*100 + h%7 + len(outcome))
					rows = append(rows, usage.Row{
						Tenant: made.ID, Operation: "listPets", Outcome: outcome, Charged: outcome == "ok", Requests: n,
						Hour: clock.Truncate(time.Hour).Add(-time.Duration(h) * time.Hour),
					})
					if h < 24 {
						want[outcome] += n
					}
					if h%24 != 0 && outcome != "report" {
						closed[h/24] += n
					}
				}
			}
		}
		// A month that began three or a few more days ago: the first of the month may be today.
		begins := uint8(min(clock.Add(-3*day).Time().Day(), 28))
		quiet := s.newTenant(keystore.TenantSpec{
			Name: "a quiet tenant", Plan: "pro", Override: plan.Limits{Month: 1000}, MonthStarts: begins,
		})
		idle := s.newTenant(keystore.TenantSpec{Name: "idle", Plan: "free"})
		before := clock.Add(-50 * time.Hour).Truncate(time.Hour)
		rows = append(rows, usage.Row{Tenant: quiet.ID, Outcome: "ok", Charged: true, Hour: before, Requests: 950})
		must.Do(t, usage.Of(s.operator).AddUsage(t.Context(), r, 1, rows, nil))
		b := s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
		status, _, page := s.send(b, "GET", Home, "")
		s.checkPage("the overview", status, 200, page, ">a quiet tenant</a>") // it is near its limit of a month
		all := want["ok"] + want["minute_quota_exceeded"] + want["upstream_timeout"]
		for tile, n := range map[string]int64{
			"Requests": all, "Refused": want["minute_quota_exceeded"], "Failed": want["upstream_timeout"],
		} {
			if text := "<dt>" + tile + ", 24 h</dt><dd>" + humanize.Comma(n) + "</dd>"; !strings.Contains(page, text) {
				t.Errorf("the overview lacks %s:\n%s", text, page)
			}
		}
		if trend := change(closed[0], closed[1]); !strings.Contains(page, "<dd>"+trend+"</dd>") {
			t.Errorf("the overview lacks %q:\n%s", trend, page)
		}
		for outcome, n := range want {
			isShown := strings.Contains(page, `outcome=`+outcome+`">`) &&
				strings.Contains(page, "</svg>"+humanize.Comma(n)+"</span>")
			if isWanted := outcome != "ok" && outcome != "report"; isShown != isWanted {
				t.Errorf("outcome %s with %d requests is among the refusals: %t", outcome, n, isShown)
			}
		}
		lists := s.console.rankingLists(t.Context(), nil, rankingPeriods[0], 3, "")
		busy := operate.ViewsOf(lists.Busiest.Rows, func(row []cell) int64 { return row[2].Bar })
		refused := operate.ViewsOf(lists.Refused.Rows, func(row []cell) int64 { return row[3].Bar })
		must.Equal(t, fmt.Sprint(busy, refused), "[100 90 81] [100 99 91]", "the bars of the first three")
		s.console.watch.tenants = []string{idle.ID.String()} // it has no usage yet, but a gateway says that it is busy
		text := func(n nearest) string { return fmt.Sprint(n.Name, " ", n.policy, n.percent()) }
		near := operate.ViewsOf(must.Get[[]nearest](t)(s.console.readNearest(t.Context())), text)
		must.Equal(t, len(near), 12, "tenants near to a limit")
		must.Equal(t, strings.Join([]string{near[0], near[1], near[2], near[11]}, ", "),
			"tenant-04 day95, a quiet tenant day95, idle day95, tenant-01 day10", "the nearest three and the last")
		for i, want := range []string{"03-02T11:00 03-04T10:30", "03-02T00:00 03-03T00:00", "02-24T00:00 03-04T10:30"} {
			since, until := rankingPeriods[i].of(instant.Of(at))
			must.Equal(t, since.Time().Format("01-02T15:04 ")+until.Time().Format("01-02T15:04"), want, "ranking %d", i)
		}
		since, until := rankingPeriods[0].of(clock)
		top := must.Get[[]usage.OfTenant](t)(usage.Of(s.operator).TopUsage(t.Context(), since, until, tenantsTop))
		must.Equal(t, len(top), tenantsTop, "busiest tenants")
		for _, u := range top {
			row := fmt.Sprintf("[tenants/%s] %s | free | %s | %s\n", u.Tenant, names[u.Tenant],
				humanize.Comma(u.Charged),
				humanize.Comma(u.Requests-u.Charged))
			if !strings.Contains(textOf(page), row) {
				t.Errorf("the overview lacks %s", row)
			}
		}
		for path, texts := range map[string][]string{
			"rankings":                          {"tenant-00", `aria-current="true">24 hours<`, ">951<", ">95 %<", "upstream_timeout"},
			"rankings?outcome=upstream_timeout": {"Only upstream_timeout.", "!data-title=\"Outcome\">minute"},
			"rankings?period=yesterday":         {`aria-current="true">Yesterday`},
		} {
			s.wants(b, Home+path, 200, texts...)
		}
		// Without the table, what was read before stays, with the reason.
		must.Get[any](t)(s.db.Exec("ALTER TABLE usage_hours RENAME TO away"))
		s.wants(b, Home, 200, "These figures are of ", humanize.Comma(all))
		must.Get[any](t)(s.db.Exec("ALTER TABLE away RENAME TO usage_hours"))
		s.wants(b, Home, 200, "!These figures are of ")
	})
}

// Rankings that are shown before the tenants near a limit are known are read again.
func TestRankingsArePending(t *testing.T) {
	s := newSite(t)
	tenant, _, _ := s.populated()
	used := usage.Row{
		Tenant: tenant.ID, Operation: "getPet", Outcome: "ok", Charged: true, Requests: 12,
		Hour: instant.Of(time.Now()).Truncate(time.Hour),
	}
	must.Do(t, usage.Of(s.operator).AddUsage(t.Context(), s.gateway("gw-8"), 1, []usage.Row{used}, nil))
	b := s.signIn(sessions.ConsoleInvitation{ReadOnly: true})
	known := make(chan struct{})
	s.console.cfg.Quota = func(context.Context, id.Tenant) (v quota.Verdict, err error) { <-known; return v, nil }
	before := figuresWithin
	figuresWithin = time.Second
	testkit.Eventually(t, 20*time.Second, "a page has the rankings that are known, and will be read again",
		func() bool {
			_, header, page := s.send(b, "GET", Home+"rankings", "")
			return header.Get("Refresh") != "" && strings.Contains(page, ">12<")
		})
	figuresWithin = before
	close(known)
	if _, header, _ := s.send(b, "GET", Home+"rankings", ""); header.Get("Refresh") != "" {
		t.Errorf("%v", header)
	}
}

// busy registers a gateway whose /live has 50 more requests, of which 10 are refused, in every
// second of its own clock.
func (s *site) busy(id string) {
	s.Helper()
	var mu sync.Mutex
	ends := instant.Of(time.Now().Add(50 * time.Hour))
	answer := operate.Live{
		Mode: "shared", CertificateEnds: ends, Since: 1, Within: []float64{0.001, 0.01}, Took: make([]uint64, 2),
	}
	problems := []service.Problem{
		{Name: "quotas", Detail: "Redis <does> not answer", Serving: true}, {Name: "directory", Detail: "it is too old"},
	}
	s.register(id, map[string]any{
		"/live": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.RawQuery != "n=10" {
				http.NotFound(w, r)
				return
			}
			answer.Elapsed, answer.Requests, answer.Refused = answer.Elapsed+1000, answer.Requests+50, answer.Refused+10
			answer.Took[0], answer.Took[1] = answer.Took[0]+25, answer.Took[1]+50
			service.WriteJSON(w, http.StatusOK, answer)
		}),
		"/readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			service.WriteJSON(w, http.StatusServiceUnavailable, map[string]any{"problems": problems})
		}),
	})
}

// register registers a gateway with the answers of its admin port.
func (s *site) register(id string, answers map[string]any) {
	s.Helper()
	r := keystore.Registration{ID: id, Incarnation: "a", AdminAddress: testkit.AdminPort(s, answers)}
	must.Get[int64](s)(s.operator.Register(s.Context(), r, nil))
}

// The overview has live figures of all gateways, until the session ends.
func TestLiveFigures(t *testing.T) {
	s := newSite(t)
	b := s.signIn(sessions.ConsoleInvitation{})
	s.busy("gw-2")
	s.register("gw-3", nil)
	s.busy("gw-4")
	var parts struct{ Now, Gateways, Problems string }
	testkit.Eventually(t, time.Minute, "there are rates", func() bool { // from the second refresh on
		_, _, data := s.send(b, "GET", Home+"live", "")
		must.Do(t, json.Unmarshal([]byte(data), &parts))
		const rates = `class="number">50.0</td><td role="cell" data-title="Refused/s" class="number">10.0</td>`
		return strings.Count(parts.Gateways, rates) == 2 && strings.HasPrefix(parts.Now, "100.0<")
	})
	s.checkPage("the gateways", 200, 200, parts.Gateways, `data-title="Gateway"><span class="whole">gw-2</span></th>`,
		"1.00 ms", "9.82 ms", "in Redis", "expires in 2 d", `data-title="Gateway"><span class="whole">gw-3</span></th>`)
	s.checkPage("the problems", 200, 200, parts.Problems, // one of several gateways has one row
		`<p class="notice"><strong>Warning, gw-1, gw-2, gw-4:</strong> quotas: Redis &lt;does&gt; not answer</p>`,
		`<p class="notice severe"><strong>Problem, gw-2, gw-4:</strong> directory: it is too old</p>`,
		`gw-3:</strong> its figures are missing: GET http://`)
	must.Equal(t, strings.HasPrefix(parts.Problems, `<p class="notice severe">`), true, "severe problems come first")
	must.Get[int64](t)(sessions.Of(s.operator).EndConsoles(t.Context()))
	if status, _, data := s.send(b, "GET", Home+"live", ""); status != http.StatusUnauthorized {
		t.Errorf("after the end of the session: %d\n%s", status, data)
	}
}
