//go:build e2e

package browser_test

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"

	"petgate/shared/testkit/fleet"
)

// The page says of a valid key whether it can be used now. For a key that cannot, it shows no meter and sends nothing.
func testPortalKnowsWhatAKeyCanDo(t *testing.T, s site) {
	banned, suspended, away := s.NewTenant("banned"), s.NewTenant("suspended"), s.NewKey("banned", "--allow", "192.0.2.0/24")
	good := s.NewTenant("good", fleet.Unlimited...)
	s.MustKeyadmin("ban", "add", banned.ID, "--for", "10m", "--reason", "a test", "--yes")
	s.MustKeyadmin("tenant", "suspend", "suspended", "--yes")
	gateway := s.Gateways[0]
	b := newTab(t, s.browser, gateway.URL)
	b.do(chromedp.Navigate(gateway.URL + "/docs"))
	meters := func() int { return evaluate[int](b, `document.querySelectorAll(".meter").length`) }
	waits := func() int {
		n, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(b.text(sendList)))
		return n
	}
	use := func(key fleet.Key, says string, hasMeters bool) {
		t.Helper()
		b.enter(keyField, key.Token)
		b.awaitText(patience, "#key-state", says)
		if n := meters(); (n > 0) != hasMeters {
			t.Errorf("%s: the page shows %d meters", says, n)
		}
	}
	forget := func() { b.do(chromedp.Click(chromedp.CSS("#key-forget"))) }

	use(banned, "The key is banned. You can send again at ", false)
	if n := waits(); n < 500 || n > 601 {
		t.Errorf("the key is banned for 10 minutes; the button says %q", b.text(sendList))
	}
	b.asked("")
	b.do(chromedp.Click(sendList))
	if asked := b.asked("/v1/"); asked != nil {
		t.Errorf("with a banned key, the page sent %q", asked)
	}
	b.check("6-banned")
	b.do(chromedp.Click(chromedp.CSS("#getQuota .send"))) // this is free
	b.awaitText(patience, "#getQuota .line", "200")
	if n := meters(); n > 0 {
		t.Errorf("after a report, the page shows %d meters of a banned key", n)
	}
	forget()

	use(away, "The key is not accepted: the API key may not be used from your address.", false)
	forget()
	use(suspended, "The key is valid, but its account is suspended", false)
	b.do(chromedp.Click(sendList)) // the ban was that of another key
	b.awaitText(patience, listed, "403")
	if n := meters(); n != 0 {
		t.Errorf("after a call with a suspended key, the page shows %d meters", n)
	}
	forget()
	// Each limit has its meter: those of the account, and those of the key.
	s.MustKeyadmin("tenant", "create", "monthly", "--minute", "100", "--day", "1000", "--month", "20000")
	use(s.NewKey("monthly", "--minute", "50", "--day", "500"), "The key is valid, on the plan", true)
	if says, want := evaluate[string](b, `[...document.querySelectorAll("#key .meter p")].map(p => p.textContent).join("; ")`), "100 of 100 left this minute; "+
		"1,000 of 1,000 left today; 20,000 of 20,000 left this month; 50 of 50 left this minute for this key; 500 of 500 left today for this key"; says != want {
		t.Errorf("the meters say %q, want %q", says, want)
	}
	b.check("6-meters")
	forget()
	use(good, "The key is valid, on the plan", true)

	// A key that asks for its quota too often can still make other calls.
	evaluate[string](b, `(() => { for (let n = 0; n < 30; n++) document.querySelector("#getQuota .send").click(); return "" })()`)
	b.awaitText(patience, "#getQuota .state", "Ask for the quota at most once a second.")
	if text := b.text(sendList); text != "Send" {
		t.Errorf("after many questions for the quota, the button says %q", text)
	}

	// A number of 64 bits is shown as it came.
	const large = `{"name": "Rex", "categoryId": 9007199254740993}`
	evaluate[string](b, `document.querySelector("#createPet textarea").value = '`+large+`'`)
	b.do(chromedp.Click(chromedp.CSS("#createPet .send")))
	b.awaitText(patience, "#createPet .body", "9007199254740993")

	b.enter("#createPet [name=Idempotency-Key]", "ключ")
	b.do(chromedp.Click(chromedp.CSS("#createPet .send")))
	b.awaitText(patience, "#createPet .state", "A header has characters that cannot be sent.")

	// A shorter wait does not end a longer one. A call that was in progress can have such a response.
	evaluate[string](b, `block(document.querySelector("#createPet .state"), 100, "First."), block(document.querySelector("#listPets .state"), 1, "Second."), ""`)
	if n := waits(); n < 95 {
		t.Errorf("after waits of 100 s and of 1 s, the button says %q", b.text(sendList))
	}
}
