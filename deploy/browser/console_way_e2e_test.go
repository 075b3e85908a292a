//go:build e2e

package browser_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// visitor is an operator at the console.
type visitor struct {
	*tab
	console   string // the address of its first page
	fleet     *fleet.Fleet
	confirmed *int // how many changes all gateways had confirmed when the page came
}

// visit opens the console by a link of keyadmin.
func visit(t *testing.T, browser context.Context, f *fleet.Fleet) visitor {
	t.Helper()
	admin := f.Gateways[0].Admin
	b := newTab(t, browser, admin)
	b.do(chromedp.Navigate(strings.TrimSpace(f.MustKeyadmin("console"))), chromedp.WaitVisible(chromedp.CSS("#login button")),
		chromedp.Poll[chromedp.Void]("document.querySelector('#code').value !== ''", chromedp.WithPollingInterval(20*time.Millisecond)),
		press("#login button"), chromedp.WaitVisible(chromedp.CSS(".session")))
	return visitor{b, admin + "/console/", f, new(int)}
}

// press clicks an element wherever it is: a layout that changes meanwhile cannot make the click miss it.
func press(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector))
}

// open opens a page, with everything that is folded. It asks again for a page that could not be read.
func (v visitor) open(path string) {
	v.t.Helper()
	testkit.Eventually(v.t, patience, "/console/"+path+" can be read", func() bool {
		v.do(chromedp.Navigate(v.console + path))
		const isRead = "performance.getEntriesByType('navigation')[0].responseStatus !== 503"
		return evaluate[bool](v.tab, isRead)
	})
	v.do(chromedp.WaitVisible(chromedp.CSS(".session")))
	v.unfold()
}

func (v visitor) unfold() {
	v.t.Helper()
	evaluate[bool](v.tab, "document.querySelectorAll('details').forEach((d) => { d.open = true; }), true")
}

// glance looks at the page in light, in dark and on a phone: it must be accessible, and must not need to be scrolled sideways.
func (v visitor) glance(state string) {
	v.t.Helper()
	v.checkAs(state, looks[0], looks[1], look{name: "1024", width: 1024, height: 768, scheme: "light"}, look{name: "360", width: 360, height: 740, scheme: "light"})
}

// changed is what a page says of the change that was made.
const changed = ":is(.done, .notice)[role=status]"

// send fills in fields of a form, in pairs, sends it, and answers yes if the console asks. The page must then say what was done, and
// that all gateways have confirmed it. If it says that it did not wait for all, send waits for the others.
func (v visitor) send(form string, says string, fields ...string) {
	v.t.Helper()
	at := "form[method=post][action='" + form + "'] "
	for i := 0; i < len(fields); i += 2 {
		v.enter(chromedp.CSS(at+"[name="+fields[i]+"]"), fields[i+1])
	}
	v.do(press(at+"button"), chromedp.WaitVisible(chromedp.CSS(changed+", .fields:has([name=sure]) button")))
	const sure = ".fields:has([name=sure]) button"
	if evaluate[bool](v.tab, "!!document.querySelector('"+sure+"')") {
		if says == "Banned key" { // once is enough
			v.glance("console-question")
		}
		v.do(press(sure), chromedp.WaitVisible(chromedp.CSS(changed)))
	}
	note := v.text(changed)
	isConfirmed := strings.Contains(note, "onfirmed by 2 of 2 gateways")
	if !strings.Contains(note, says) || !isConfirmed && !strings.Contains(note, "confirmed by only ") {
		v.t.Errorf("after %s the page says %q, want %q and the confirmation", form, note, says)
	}
	if isConfirmed {
		*v.confirmed++
		return
	}
	testkit.Eventually(v.t, patience, "both gateways have applied the change", func() bool {
		return strings.Count(v.fleet.MustKeyadmin("gateway", "list"), " live ") == 2
	})
}

// What an operator does with the mouse: a tenant, its key, its first request in a plot, a ban and its end, and a revocation after which
// no request passes once the page says that it is confirmed.
func testConsoleWay(t *testing.T, s site) {
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Gateways: 2, Redis: redis, RedisPrefix: prefix, GatewayEnv: []string{"GATEWAY_CONSOLE=true"}})
	v := visit(t, s.browser, f)
	v.open("")
	v.awaitText(patience, "#live-state", "Live.")
	v.awaitText(patience, "#live-gateways", "in Redis")

	v.open("tenants")
	v.glance("console-tenants-empty")
	v.send("/console/tenants", "Created tenant acme", "name", "acme", "minute", "100000", "day", "1000000")
	id := evaluate[string](v.tab, "location.pathname.split('/').pop()")
	tenant := "tenants/" + id
	v.open(tenant)
	if page := v.text("#usage"); !strings.Contains(page, "There were no requests") {
		t.Errorf("the page of a new tenant does not say that there were no requests: %s", page)
	}
	v.send("/console/tenants/"+id+"/keys", "Created live key", "name", "first")
	token := v.text("#token")
	v.do(press("[data-copies=token]"))
	if copied := evaluate[string](v.tab, "getSelection().toString()"); copied != token || v.text("#copied") == "" {
		t.Errorf("the button copies %q", copied)
	}
	v.glance("console-token")
	v.do(press("#content a[href^='/console/keys/']"), chromedp.WaitVisible(chromedp.CSS("details")))
	key := evaluate[string](v.tab, "location.pathname.split('/').pop()")

	for _, g := range f.Gateways {
		g.Want(t, token, 200, "")
	}
	testkit.Eventually(t, patience, "a plot of the first requests", func() bool { // gateways write usage every few seconds
		v.open(tenant + "?usage=24h")
		return evaluate[bool](v.tab, "!!document.querySelector('#usage svg')")
	})
	if seen := evaluate[string](v.tab, "document.querySelector('#usage-outcome-desc').textContent"); !strings.Contains(seen, " served. ") {
		t.Errorf("the plot says %q", seen)
	}
	v.glance("console-tenant")
	v.open(tenant + "?usage=400d")
	v.checkAs("console-tenant-400d", looks[0])

	v.open("keys/" + key)
	v.glance("console-key")
	v.send("/console/keys/"+key+"/ban", "Banned key", "reason", "too curious")
	for _, g := range f.Gateways {
		g.Want(t, token, 429, "key_banned")
	}
	v.open("bans")
	v.glance("console-bans")
	v.open("explain")
	v.do(chromedp.SendKeys(chromedp.CSS("#token"), token), press("form[method=post][action='/console/explain'] button"),
		chromedp.WaitVisible(chromedp.CSS(".sheet")))
	if says := v.text("main"); !strings.Contains(says, "It would be refused") || !strings.Contains(says, "too curious") {
		t.Errorf("the explanation of a banned key: %s", says)
	}
	v.glance("console-explain")
	v.open("keys/" + key)
	v.send("/console/keys/"+key+"/lift", "Lifted the ban")
	for _, g := range f.Gateways {
		g.Want(t, token, 200, "")
	}

	v.open("keys/" + key)
	isRevoked := v.whileAsking(f, token)
	v.send("/console/keys/"+key+"/revoke", "Revoked key")
	isRevoked()

	for _, page := range []string{"", "rankings", "tenants", "plans", "audit", "gateways"} {
		v.open(page)
		v.glance("console-page-" + strings.ReplaceAll(page, "?", "-"))
	}
	if *v.confirmed == 0 {
		t.Error("the page never says that both gateways have confirmed a change")
	}
	for _, asked := range v.asked("") {
		if strings.Contains(asked, token) {
			t.Errorf("the token is in an address: %s", asked)
		}
	}
}

// whileAsking sends requests to all gateways until a while after isRevoked is called. A request that begins after that must not pass.
func (v visitor) whileAsking(f *fleet.Fleet, token string) (isRevoked func()) {
	var revoked atomic.Bool
	results := make(chan int, len(f.Gateways)) // how many requests passed that must not
	for _, g := range f.Gateways {
		go func() {
			passed := 0
			for after := 0; after < 20; {
				isAfter := revoked.Load()
				reply := g.Ask(token)
				if isAfter {
					after++
				}
				if isAfter && reply.Status == 200 {
					passed++
				}
			}
			results <- passed
		}()
	}
	return func() {
		v.t.Helper()
		revoked.Store(true)
		for range f.Gateways {
			if passed := <-results; passed > 0 {
				v.t.Errorf("%d requests passed after the page said that the revocation is confirmed", passed)
			}
		}
	}
}
