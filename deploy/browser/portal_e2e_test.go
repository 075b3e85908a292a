//go:build e2e

package browser_test

import (
	"crypto/rand"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"petgate/shared/core/apikey"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

const (
	sendList chromedp.CSS = "#listPets .send"
	listed   chromedp.CSS = "#listPets .line"
	keyField chromedp.CSS = "#key-field"
)

// testPortal does what a new customer does: reads, pastes a key, calls until a limit is used up,
// waits as long as the page says, calls again.
func testPortal(t *testing.T, s site) {
	key := s.NewTenant("acme", "--minute", "3", "--day", "1000")
	gateway := s.Gateways[0]
	store, client := s.NewTenant("store", fleet.Unlimited...), gateway.Client()
	for _, name := range []string{"Rex", "Bella", "Milo"} {
		client.Must(t, fleet.PostPet(store.Token, name))
	}
	client.Close()
	b := newTab(t, s.browser, gateway.URL)

	b.do(chromedp.Navigate(gateway.URL + "/"))
	must.Equal(t, run(b, chromedp.Location()), gateway.URL+"/docs", "/ leads to")
	b.check("1-fresh")
	if days := b.text("#getPet .left"); !regexp.MustCompile(`^, in [\d,]+ days?$`).MatchString(days) {
		t.Errorf("until the sunset: %q", days)
	}

	// A key that is mistyped, cut off or of another environment.
	mistyped := strings.Replace(key.Token, key.Token[12:14], "00", 1)
	for _, wrong := range []struct{ token, says string }{
		{mistyped, "mistyped or cut off: its checksum does not match"},
		{key.Token[:40], "it has 40 characters instead of 47"},
		{strings.Replace(key.Token, "live", "test", 1), "for another environment"},
		{"hello", "A key begins with ptg_live_"},
	} {
		b.enter(keyField, wrong.token+kb.Enter)
		b.awaitText(patience, "#key-state", wrong.says)
		b.click(sendList)
		b.awaitText(patience, "#listPets .state", "Paste your API key first")
	}
	b.check("2-mistyped")
	b.sent("with a key that is wrong")

	unknown := must.Get[string](t)(apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live), rand.Reader))
	b.enter(keyField, unknown)
	b.awaitText(patience, "#key-state", "The key is not accepted: the API key is unknown.")
	b.click("#key-forget")

	b.enter(keyField, key.Token)
	b.awaitText(patience, "#key-hint", "ptg_live_…"+key.Token[43:])
	b.awaitText(patience, "#key-state", "The key is valid, on the plan free.")
	b.awaitText(patience, "#key .meters", "3 of 3 left this minute")
	b.sent("to check two keys", "GET "+gateway.URL+"/v1/quota", "GET "+gateway.URL+"/v1/quota")
	const places = `[document.documentElement.outerHTML,
		...[...document.querySelectorAll("input, textarea")].map((e) => e.value), location.href, document.cookie,
		JSON.stringify(localStorage), JSON.stringify(sessionStorage), JSON.stringify(history.state), window.name,
		].join("\n")`
	leaked := func(when string) {
		t.Helper()
		if strings.Contains(evaluate[string](b, places), key.Token) {
			t.Errorf("%s: the key is in the page, a field, a storage or the address", when)
		}
	}
	leaked("after pasting")

	// The examples have the key while the reader wants that, and not longer.
	b.click("#key-shown")
	for language, want := range map[string]string{
		"curl":       `"` + gateway.URL + `/v1/pets"`,
		"go":         `URL: "` + gateway.URL + `", Token: "` + key.Token + `"`,
		"typescript": `url: "` + gateway.URL + `", token: "` + key.Token + `"`,
		"python":     `"Bearer " + "` + key.Token + `"`,
	} {
		text := evaluate[string](b, `document.querySelector("#createPet .`+language+`").textContent`)
		if !strings.Contains(text, want) || !strings.Contains(text, key.Token) || strings.Contains(text, "PETGATE_") {
			t.Errorf("the example in %s is\n%s", language, text)
		}
	}
	b.click("#key-shown")
	leaked("after it was in the examples")

	b.do(chromedp.SendKeys(chromedp.CSS("#listPets [name=limit]"), "2"), chromedp.Click(sendList))
	b.awaitText(patience, listed, "200")
	b.sent("for a list of two", "GET "+gateway.URL+"/v1/pets?limit=2")
	fields := b.text("#listPets .fields")
	for _, name := range []string{
		"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
		"x-request-id",
	} {
		if !strings.Contains(fields, name+"\n") {
			t.Errorf("the page does not show %s:\n%s", name, fields)
		}
	}
	if body := b.text("#listPets .body"); !strings.HasPrefix(body, "[") {
		t.Errorf("the body is shown as %q", body)
	}
	meters := func(want ...string) {
		t.Helper()
		for _, place := range []chromedp.CSS{"#key .meters", "#listPets .meters"} {
			for _, text := range want {
				b.awaitText(patience, place, text)
			}
		}
	}
	meters("2 of 3 left this minute", "999 of 1,000 left today")

	b.click("#createPet .send")
	b.awaitText(patience, "#createPet .line", "201")
	b.click("#getPet .send")
	b.awaitText(patience, "#getPet .line", "20")
	meters("0 of 3 left this minute", "997 of 1,000 left today")

	b.click(sendList)
	b.awaitText(patience, listed, "429")
	refusedAt := time.Now()
	b.awaitText(patience, "#listPets .fields", "Retry-After")
	b.awaitText(patience, "#listPets .state", "You can send again at")
	wait, err := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(b.text(sendList)))
	if err != nil || wait < 30 || wait > 61 {
		t.Fatalf("the button says %q", b.text(sendList))
	}
	b.asked("")
	b.click(sendList, "#createPet .send") // all operations share the limits
	b.sent("while it counts down")
	b.awaitText(patience, sendList, "Wait "+strconv.Itoa(wait-3))
	b.check("3-refused")
	leaked("after calls")
	b.awaitText(90*time.Second, sendList, "Send")
	waited := time.Since(refusedAt)
	b.awaitText(patience, "#listPets .state", "You can send again.")
	b.click(sendList)
	b.awaitText(patience, listed, "200")
	b.check("4-answered")

	b.click("#key-shown", "#key-forget")
	b.asked("")
	b.click(sendList)
	b.awaitText(patience, "#listPets .state", "Paste your API key first")
	b.sent("after the key was forgotten")
	leaked("after it was forgotten")

	t.Logf("figure: portal: 429 with a countdown of %d s; sent again after %v and answered with 200; "+
		"4 states accessible in %d looks", wait, waited.Round(time.Second), len(looks))
}

// If a reader leaves the page and comes back, the page has no key. The browser may show the same
// page again without loading it. chromedp does not notice that, so the test looks at the page with
// scripts.
func testPortalForgetsWhenLeft(t *testing.T, s site) {
	key := s.NewTenant("leaver", fleet.Unlimited...)
	gateway := s.Gateways[0]
	b := newTab(t, s.browser, gateway.URL)
	b.do(chromedp.Navigate(gateway.URL+"/docs"), chromedp.SendKeys(keyField, key.Token))
	b.awaitText(patience, "#key-hint", key.Token[43:])
	b.do(chromedp.Navigate(gateway.URL + "/llms.txt"))
	evaluate[string](b, `history.back(); ""`)
	const hint = `(document.querySelector("#key-hint") || {textContent: "absent"}).textContent + location.pathname`
	testkit.Eventually(t, patience, "the page is back and has no key",
		func() bool { return evaluate[string](b, hint) == "/docs" })
	b.asked("")
	says := evaluate[string](b, `document.querySelector("#listPets .send").click(),
		document.querySelector("#listPets .state").textContent`)
	must.Equal(t, says, "Paste your API key first.", "the page says")
	b.sent("without a key")
}

// The page can be used with the keyboard alone, and shows where the focus is.
func testPortalByKeyboard(t *testing.T, s site) {
	key := s.NewTenant("typist", fleet.Unlimited...)
	gateway := s.Gateways[0]
	b := newTab(t, s.browser, gateway.URL)
	b.do(chromedp.Navigate(gateway.URL + "/docs"))
	b.as(looks[0])
	b.do(chromedp.KeyEvent(kb.Tab))
	const focused = `document.activeElement.innerText || document.activeElement.id`
	must.Equal(t, evaluate[string](b, focused), "Skip to the content", "the first Tab reaches")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab))
	must.Equal(t, evaluate[string](b, focused), "key-field", "the third Tab reaches")
	b.do(chromedp.KeyEvent(key.Token))
	b.awaitText(patience, "#key-hint", key.Token[43:])
	must.Equal(t, evaluate[string](b, `document.activeElement.id`), "key-hint", "after the key, the focus is at")
	b.do(chromedp.Focus(chromedp.CSS("#listPets [name=limit]")), chromedp.KeyEvent("1"+kb.Enter))
	b.awaitText(patience, listed, "200")
	b.enter("#createPet [name=Idempotency-Key]", "once"+kb.Enter) // a header
	b.awaitText(patience, "#createPet .line", "201")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.awaitText(patience, "#createPet .fields", "idempotent-replayed")
	b.do(chromedp.Focus(sendList))
	must.Equal(t, evaluate[string](b, `getComputedStyle(document.activeElement).outlineStyle`), "solid",
		"the focus is drawn as")
}

// Without scripts, the page has nothing that does not work. The tests of gateway/portal compare
// what it says.
func testPortalWithoutScript(t *testing.T, s site) {
	gateway := s.Gateways[0]
	b := newTab(t, s.browser, gateway.URL)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(gateway.URL + "/docs"))
	nodes := call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	for _, n := range nodes {
		if n.Name == nil || n.Ignored {
			continue
		}
		if role := strings.Trim(string(n.Role.Value), `"`); role == "button" || role == "textbox" {
			t.Errorf("a %s does nothing without a script: %s", role, n.Name.Value)
		}
	}
	if len(nodes) < 500 {
		t.Errorf("the page has %d parts", len(nodes))
	}
}

// The page says of a valid key whether it can be used now. For a key that cannot, it shows no meter
// and sends nothing.
func testPortalKnowsWhatAKeyCanDo(t *testing.T, s site) {
	banned, suspended := s.NewTenant("banned"), s.NewTenant("suspended")
	away := s.NewKey("banned", "--allow", "192.0.2.0/24")
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
	forget := func() { b.click("#key-forget") }

	use(banned, "The key is banned. You can send again at ", false)
	if n := waits(); n < 500 || n > 601 {
		t.Errorf("the key is banned for 10 minutes; the button says %q", b.text(sendList))
	}
	b.asked("")
	b.click(sendList)
	b.sent("with a banned key")
	b.check("6-banned")
	b.click("#getQuota .send") // this is free
	b.awaitText(patience, "#getQuota .line", "200")
	must.Equal(t, meters(), 0, "meters of a banned key after a report")
	forget()

	use(away, "The key is not accepted: the API key may not be used from your address.", false)
	forget()
	use(suspended, "The key is valid, but its account is suspended", false)
	b.click(sendList) // the ban was that of another key
	b.awaitText(patience, listed, "403")
	must.Equal(t, meters(), 0, "meters on the page after a call with a suspended key")
	forget()
	// Each limit has its meter: those of the account, and those of the key.
	s.MustKeyadmin("tenant", "create", "monthly", "--minute", "100", "--day", "1000", "--month", "20000")
	use(s.NewKey("monthly", "--minute", "50", "--day", "500"), "The key is valid, on the plan", true)
	all := evaluate[string](b, `[...document.querySelectorAll("#key .meter p")].map(p => p.textContent).join("; ")`)
	must.Equal(t, all, "100 of 100 left this minute; 1,000 of 1,000 left today; 20,000 of 20,000 left this month; "+
		"50 of 50 left this minute for this key; 500 of 500 left today for this key", "the meters say")
	b.check("6-meters")
	forget()
	use(good, "The key is valid, on the plan", true)

	// A key that asks for its quota too often can still make other calls.
	evaluate[string](b,
		`(() => { for (let n = 0; n < 30; n++) document.querySelector("#getQuota .send").click(); return "" })()`)
	b.awaitText(patience, "#getQuota .state", "Ask for the quota at most once a second.")
	must.Equal(t, b.text(sendList), "Send", "after many questions for the quota, the button says")

	// A number of 64 bits is shown as it came.
	const large = `{"name": "Rex", "categoryId": 9007199254740993}`
	evaluate[string](b, `document.querySelector("#createPet textarea").value = '`+large+`'`)
	b.click("#createPet .send")
	b.awaitText(patience, "#createPet .body", "9007199254740993")

	b.enter("#createPet [name=Idempotency-Key]", "ключ")
	b.click("#createPet .send")
	b.awaitText(patience, "#createPet .state", "A header has characters that cannot be sent.")

	// A shorter wait does not end a longer one. A call that was in progress can have such a
	// response.
	evaluate[string](b, `block(document.querySelector("#createPet .state"), 100, "First."),
		block(document.querySelector("#listPets .state"), 1, "Second."), ""`)
	if n := waits(); n < 95 {
		t.Errorf("after waits of 100 s and of 1 s, the button says %q", b.text(sendList))
	}
}
