//go:build e2e

package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"petgate/gateway/portal"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/core/plan"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// documentLooks are those at which the pages of other documents are looked at.
var documentLooks = []look{
	{name: "1440-light", width: 1440, height: 900, scheme: "light", isChecked: true},
	{name: "1440-dark", width: 1440, height: 900, scheme: "dark"},
	{name: "768-dark", width: 768, height: 1024, scheme: "dark", isChecked: true},
	{name: "360-light", width: 360, height: 740, scheme: "light", isChecked: true},
	{name: "print", width: 794, height: 1123, scheme: "light", media: "print"},
}

// The documentation of the pets, of a document with everything that is hard to show, and of one
// with 300 operations: accessible, no word broken, one text width, one scroll bar, and the contents
// with all operations at every width.
func TestDocumentationOfAnyDocument(t *testing.T) {
	hard := must.Get[[]byte](t)(os.ReadFile("../../gateway/portal/testdata/hard.yaml"))
	browser := startBrowser(t)
	for name, c := range map[string]struct {
		document []byte
		page     string
		hasAll   bool // its search finds all operations
	}{
		"pets":        {api.Pets().Source(), "/docs", false},
		"hard":        {hard, "/docs", false},
		"large":       {manyOperations(300), "/docs", true},
		"large-group": {manyOperations(300), "/docs/part-2", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := must.Get[*api.API](t)(api.Load(name, c.document))
			site := servePages(t, a)
			b := newTab(t, browser, site.URL)
			b.do(chromedp.Navigate(site.URL + c.page))
			b.checkAs("8-"+name, documentLooks...)
			for _, l := range documentLooks[:4] {
				b.as(l)
				want := len(a.Operations)
				if c.page != portal.Home { // a group's page lists that group
					want = evaluate[int](b, `document.querySelectorAll("article.operation").length`)
				}
				n := evaluate[int](b, `contents.open = true, document.querySelectorAll("nav .group li").length`)
				must.Equal(t, n, want, "%s: operations in the contents", l.name)
				b.photograph("9-"+name+"-contents", l)
			}
			if !c.hasAll {
				return
			}
			if c.page != portal.Home {
				b.click(`nav details > p a`)
				testkit.Eventually(t, patience, "the page of all operations, with its contents open", func() bool {
					return evaluate[bool](b,
						`location.pathname === "/docs" && document.readyState === "complete" && (contents.open = true)`)
				})
			}
			b.do(chromedp.SendKeys(chromedp.CSS("#search"), "thing 29"))
			found := evaluate[int](b,
				`[...document.querySelectorAll("nav .group li")].filter((item) => item.checkVisibility()).length`)
			must.Equal(t, found, 13, "operations that the search finds")
			b.click(`nav .group li:not([hidden]) a`)
			testkit.Eventually(t, patience, "the first result leads to its operation", func() bool {
				return evaluate[bool](b, `location.hash === "#getThing29" &&
					Boolean(document.getElementById("getThing29")?.checkVisibility())`)
			})
		})
	}
}

// servePages serves the pages of an API as a gateway does, and nothing else.
func servePages(t *testing.T, a *api.API) *httptest.Server {
	t.Helper()
	p := portal.New(portal.Config{API: a, Environment: apikey.Live, Bans: ban.Product})
	free := portal.Plan{Name: "free", Limits: plan.Limits{Minute: 60, Day: 1000}}
	large := portal.Plan{Name: "a-plan-with-a-name-of-forty-characters-in"}
	large.Limits = plan.Limits{Minute: 1_000_000_000, Day: 1_000_000_000}
	byPath := map[string]portal.Page{}
	for _, one := range p.Pages([]portal.Plan{free, large}) {
		byPath[one.Path] = one
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one, found := byPath[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", one.Type)
		w.Header().Set("Content-Security-Policy",
			"default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'")
		_, _ = w.Write(one.Content().Body)
	}))
	t.Cleanup(s.Close)
	return s
}

// manyOperations is a document with n operations of several tags.
func manyOperations(n int) []byte {
	text := []byte("openapi: 3.0.3\ninfo: {title: Things, version: '1'}\npaths:\n")
	for i := range n {
		text = fmt.Appendf(text, `  /v1/things%[1]d/{id}:
    get:
      {operationId: getThing%[1]d, summary: Get thing %[1]d, tags: [part %[2]d],
       parameters: [{name: id, in: path, required: true, schema: {type: integer}}],
       responses: {'200': {description: The thing., content: {application/json: {schema: {type: object,
         properties: {id: {type: integer}}}}}}}}
`, i, i/60)
	}
	return text
}

// wordsOfText are words that may break at hyphens, slashes, dots and brackets. wholeWords break
// nowhere: ban.added, key_…, keyadmin:anna.
const (
	wordsOfText = `/[^\s\-\/.,[\]{}_]+/g`
	wholeWords  = `/\S+/g`
)

// brokenWords returns the words that do not fit into a line of their place: a cell, a heading, a
// name.
func (b *tab) brokenWords(words string) []string {
	b.t.Helper()
	return evaluate[[]string](b, `(() => {
		const found = [];
		const places = "td, th, h1, h2, h3, h4, dt, .console dd, summary, button, label, .title, .tag, nav a";
		for (const place of document.querySelectorAll(places)) {
			if (!place.checkVisibility()) continue;
			const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
			for (let text; (text = texts.nextNode()); ) {
				for (const word of text.data.matchAll(`+words+`)) {
					const range = new Range();
					range.setStart(text, word.index);
					range.setEnd(text, word.index + word[0].length);
					const lines = new Set([...range.getClientRects()].map((line) => line.top));
					if (lines.size > 1) found.push(place.tagName + ": " + word[0]);
				}
			}
		}
		return found;
	})()`)
}

// scrollBars returns what has a scroll bar of its own for longer content, besides the page.
func (b *tab) scrollBars() []string {
	b.t.Helper()
	return evaluate[[]string](b, `[...document.querySelectorAll("main *")]
		.filter((e) => e.tagName !== "TEXTAREA" && e.scrollHeight > e.clientHeight + 1)
		.filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowY))
		.map((e) => e.tagName + "." + e.className)`)
}

// textWidths returns the right edges of the columns of text: one, if all have the same width.
func (b *tab) textWidths() []int {
	b.t.Helper()
	return evaluate[[]int](b, `(() => {
		const columns = "section > dl, article > dl, .split > div:first-child, section > .scroll";
		const seen = [...document.querySelectorAll("main :is(" + columns + ")")].filter((e) => e.checkVisibility());
		return [...new Set(seen.map((e) => Math.round(e.getBoundingClientRect().right)))];
	})()`)
}
