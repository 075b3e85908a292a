//go:build e2e

package browser_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"petgate/shared/testkit"
)

// From the link that keyadmin prints, to the overview, and out again. The link works once, and its code does not stay in the history.
func testConsoleByLink(t *testing.T, s site) {
	s.NewTenant("console")
	admin := s.Gateways[0].Admin
	b := newTab(t, s.browser, admin)

	b.do(chromedp.Navigate(admin + "/console/"))
	b.awaitText(patience, "h1", "Sign in")
	b.check("8-console-sign-in")

	link := strings.TrimSpace(s.MustKeyadmin("console"))
	_, code, _ := strings.Cut(link, "#")
	// The link only fills in the form: otherwise another page could sign this browser in with a code of its own.
	b.do(chromedp.Navigate(link))
	filled := evaluate[string](b, `new Promise(done => {
		const look = () => {
			const code = document.querySelector('#code')?.value;
			code ? done(code + ' ' + document.activeElement.tagName + ' ' + location.href) : setTimeout(look);
		};
		look();
	})`)
	if want := code + " BUTTON " + admin + "/console/login"; filled != want {
		t.Errorf("the link leads to %q, want %q", filled, want)
	}
	b.do(chromedp.Click(chromedp.CSS("#login button")), chromedp.WaitVisible(chromedp.CSS(".session")))
	// While figures are read for the first time, the overview loads itself again. Other pages do not.
	b.do(chromedp.Navigate(admin + "/console/gateways"))
	testkit.Eventually(t, patience, "the overview has its figures", func() bool {
		return evaluate[bool](b, `fetch("/console/").then((overview) => !overview.headers.has("Refresh"))`)
	})
	b.do(chromedp.Navigate(admin + "/console/"))
	if page := b.text("main"); !strings.Contains(page, s.Gateways[0].ID) || !strings.Contains(page, ".created") {
		t.Errorf("the overview lacks the gateway or the latest changes:\n%s", page)
	}
	b.check("9-console-overview")
	if at := evaluate[string](b, "location.href"); at != admin+"/console/" {
		t.Errorf("the browser is at %s", at)
	}
	posts := 0
	for _, asked := range b.asked("") {
		if strings.Contains(asked, code) {
			t.Errorf("the code is in an address: %s", asked)
		}
		if strings.HasPrefix(asked, "POST ") {
			posts++
		}
	}
	if posts != 1 {
		t.Errorf("%d forms were sent, want one, by the click", posts)
	}
	if cookies := evaluate[string](b, "document.cookie"); cookies != "" {
		t.Errorf("the script can read the cookie %q", cookies)
	}

	b.do(chromedp.Click(chromedp.CSS(".session button")), chromedp.WaitVisible(chromedp.CSS("#login")))
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link), chromedp.Click(chromedp.CSS("#login button")))
	b.do(chromedp.WaitVisible(chromedp.CSS(".notice")))
	if says := b.text(".notice"); !strings.Contains(says, "works once") {
		t.Errorf("the second use of the link says %q", says)
	}
	response, err := http.Get(admin + "/console/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.Request.URL.Path != "/console/login" {
		t.Errorf("without a session, the console shows %s", response.Request.URL)
	}
}
