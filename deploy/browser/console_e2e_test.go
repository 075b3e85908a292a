//go:build e2e

package browser_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// visitor is an operator at the console.
type visitor struct {
	*tab
	site
	console string // the address of its first page
}

// press clicks an element wherever it is: a layout that changes meanwhile cannot make the click
// miss it.
func press(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector))
}

// open opens a page, with everything that is folded. It asks again for a page that could not be
// read.
func (v visitor) open(path string) {
	v.t.Helper()
	testkit.Eventually(v.t, patience, "/console/"+path+" can be read", func() bool {
		v.do(chromedp.Navigate(v.console + path))
		const isRead = "performance.getEntriesByType('navigation')[0].responseStatus !== 503"
		return evaluate[bool](v.tab, isRead)
	})
	v.do(chromedp.WaitVisible(chromedp.CSS(".session")))
	evaluate[bool](v.tab, "document.querySelectorAll('details').forEach((d) => { d.open = true; }), true")
}

// glance looks at the page in light, in dark and on a phone: it must be accessible, and must not
// need to be scrolled sideways.
func (v visitor) glance(state string) {
	v.t.Helper()
	v.checkAs(state, looks[0], looks[1], look{name: "1024", width: 1024, height: 768, scheme: "light"},
		look{name: "360", width: 360, height: 740, scheme: "light"})
}

// send fills in fields of a form, in pairs, sends it, and answers yes if the console asks. The page
// must then say what was done. When send returns, the gateway has applied it.
func (v visitor) send(form string, says string, fields ...string) {
	v.t.Helper()
	at := "form[method=post][action='" + form + "'] "
	for i := 0; i < len(fields); i += 2 {
		v.enter(chromedp.CSS(at+"[name="+fields[i]+"]"), fields[i+1])
	}
	const changed, sure = ":is(.done, .notice)[role=status]", ".fields:has([name=sure]) button"
	v.do(press(at+"button"), chromedp.WaitVisible(chromedp.CSS(changed+", "+sure)))
	if evaluate[bool](v.tab, "!!document.querySelector('"+sure+"')") {
		if says == "Banned key" { // once is enough
			v.glance("console-question")
		}
		v.do(press(sure), chromedp.WaitVisible(chromedp.CSS(changed)))
	}
	if note := v.text(changed); !strings.Contains(note, says) || !strings.Contains(note, "of 1 gateways") {
		v.t.Errorf("after %s the page says %q, want %q and the confirmation", form, note, says)
	}
	testkit.Eventually(v.t, patience, "the gateway has applied the change", func() bool {
		return strings.Contains(v.MustKeyadmin("gateway", "list"), " live ")
	})
}

// What an operator does with the mouse: the link of keyadmin, a tenant, its key, its first request
// in a plot, a ban and its end, a revocation.
func testConsole(t *testing.T, s site) {
	gateway := s.Gateways[0]
	v := visitor{newTab(t, s.browser, gateway.Admin), s, gateway.Admin + "/console/"}
	v.do(chromedp.Navigate(v.console))
	v.awaitText(patience, "h1", "Sign in")
	v.check("8-console-sign-in")
	link := strings.TrimSpace(s.MustKeyadmin("console"))
	_, code, _ := strings.Cut(link, "#")
	// The link only fills in the form: otherwise another page could sign this browser in with a
	// code of its own.
	v.do(chromedp.Navigate(link))
	filled := evaluate[string](v.tab, `new Promise(done => {
		const look = () => {
			const code = document.querySelector('#code')?.value;
			code ? done(code + ' ' + document.activeElement.tagName + ' ' + location.href) : setTimeout(look);
		};
		look();
	})`)
	if want := code + " BUTTON " + v.console + "login"; filled != want {
		t.Errorf("the link leads to %q, want %q", filled, want)
	}
	v.do(press("#login button"), chromedp.WaitVisible(chromedp.CSS(".session")))
	posts := 0
	for _, asked := range v.asked("") {
		if strings.Contains(asked, code) {
			t.Errorf("the code is in an address: %s", asked)
		}
		if strings.HasPrefix(asked, "POST ") {
			posts++
		}
	}
	must.Equal(t, posts, 1, "forms that the click sent")

	v.open("tenants")
	v.send("/console/tenants", "Created tenant clicked", "name", "clicked", "minute", "100000", "day", "1000000")
	id := evaluate[string](v.tab, "location.pathname.split('/').pop()")
	tenant := "tenants/" + id
	v.open(tenant)
	v.send("/console/tenants/"+id+"/keys", "Created live key", "name", "first")
	token := v.text("#token")
	v.do(press("[data-copies=token]"))
	if copied := evaluate[string](v.tab, "getSelection().toString()"); copied != token || v.text("#copied") == "" {
		t.Errorf("the button copies %q", copied)
	}
	v.glance("console-token")
	v.do(press("#content a[href^='/console/keys/']"), chromedp.WaitVisible(chromedp.CSS("details")))
	key := evaluate[string](v.tab, "location.pathname.split('/').pop()")

	gateway.Want(t, token, 200, "")
	testkit.Eventually(
		t,
		patience,
		"a plot of the first request",
		func() bool { // gateways write usage every few seconds
			v.open(tenant + "?usage=24h")
			return evaluate[bool](v.tab, "!!document.querySelector('#usage svg')")
		},
	)
	v.glance("console-tenant")
	v.open(tenant + "?usage=400d")
	v.checkAs("console-tenant-400d", looks[0])

	v.open("keys/" + key)
	v.glance("console-key")
	v.send("/console/keys/"+key+"/ban", "Banned key", "reason", "too curious")
	gateway.Want(t, token, 429, "key_banned")
	v.open("bans")
	v.glance("console-bans")
	v.open("explain?key=" + key)
	v.glance("console-explain")
	v.open("keys/" + key)
	v.send("/console/keys/"+key+"/lift", "Lifted the ban")
	gateway.Want(t, token, 200, "")
	v.open("keys/" + key)
	v.send("/console/keys/"+key+"/revoke", "Revoked key")
	gateway.Want(t, token, 401, "invalid_api_key")

	// While figures are read for the first time, the overview loads itself again. Other pages do
	// not.
	testkit.Eventually(t, patience, "the overview has its figures", func() bool {
		return evaluate[bool](v.tab, `fetch("/console/").then((overview) => !overview.headers.has("Refresh"))`)
	})
	v.open("")
	v.awaitText(patience, "#live-state", "Live.")
	for _, page := range []string{"", "rankings", "tenants", "plans", "audit", "gateways"} {
		v.open(page)
		v.glance("console-page-" + page)
	}
	for _, asked := range v.asked("") {
		if strings.Contains(asked, token) {
			t.Errorf("the token is in an address: %s", asked)
		}
	}
	v.do(press(".session button"), chromedp.WaitVisible(chromedp.CSS("#login")))
}
