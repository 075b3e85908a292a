//go:build e2e

// Package browser_test opens the pages of the built programs in Chromium: what a reader sees, does
// and hears.
//
// The browser resolves no name and reaches this host only. A test fails if a page asks another
// origin, reports a breach of its Content-Security-Policy, or logs an error. With SCREENSHOTS set
// to a directory, the tests also write pictures of every state into it.
//
// testdata/axe.min.js.gz is axe-core 4.14.1 (https://github.com/dequelabs/axe-core), which checks
// pages for accessibility. It is compressed but otherwise unchanged. Its licence, MPL-2.0, is
// beside it. It is only used by these tests.
package browser_test

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// patience is how long the browser may take for anything that does not have to wait for a quota.
const patience = time.Minute

// site is what the tests share: a browser, and a product with one gateway.
type site struct {
	*fleet.Fleet
	browser context.Context
}

// Most tests wait most of the time, so they run side by side. Some start a product of their own.
func TestPages(t *testing.T) {
	s := site{fleet.Start(t, fleet.Spec{Gateways: 1, GatewayEnv: []string{"GATEWAY_CONSOLE=true"}}), startBrowser(t)}
	for _, test := range []struct {
		name string
		run  func(*testing.T, site)
	}{
		{"portal", testPortal}, // it waits for a minute, so it begins first
		{"console", testConsole},
		{"portal forgets when left", testPortalForgetsWhenLeft},
		{"portal by keyboard", testPortalByKeyboard},
		{"portal without script", testPortalWithoutScript},
		{"portal knows what a key can do", testPortalKnowsWhatAKeyCanDo},
		{"portal draws usage", testPortalDrawsUsage},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, s)
		})
	}
}

// startBrowser starts a browser for the tabs of several tests.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	options := append(
		slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(findChromium(t)),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, // it does not start as root otherwise
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("force-color-profile", "srgb"),
	)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	// Events that are newer than the library are not errors of the page.
	ctx, closeBrowser := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(closeBrowser)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	return ctx
}

// tab is a tab that shares no cookies, no storage and no cache with others.
type tab struct {
	ctx context.Context
	t   *testing.T

	mu       sync.Mutex
	requests []string // "GET http://…", in order
	wrong    []string // what the page should not have done or logged
}

// newTab opens a tab that may ask the given origins only.
func newTab(t *testing.T, browser context.Context, origins ...string) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{ctx: ctx, t: t}
	t.Cleanup(func() {
		closeTab()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, wrong := range b.wrong {
			t.Error(wrong)
		}
	})
	if err := chromedp.Listen(ctx, func(event any) { b.observe(event, origins) }); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	return b
}

// findChromium finds the browser by Debian's name for it, or by others.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no chromium on this machine: run TEST_PROGRAMS=chromium deploy/services.sh, which installs it")
	return ""
}

func (b *tab) observe(event any, origins []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complain := func(format string, args ...any) { b.wrong = append(b.wrong, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		url := e.Request.URL
		b.requests = append(b.requests, e.Request.Method+" "+url)
		allowed := slices.ContainsFunc(origins, func(origin string) bool { return strings.HasPrefix(url, origin+"/") })
		if !allowed && !strings.HasPrefix(url, "data:") && url != "about:blank" {
			complain("a request left the origin: %s", url)
		}
	case *log.EventEntryAdded:
		isProblem := e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning
		if isProblem && !isStatus(e.Entry) {
			complain("the browser logged %s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			complain("the console has: %s", e.Args[0].Value)
		}
	case *runtime.EventExceptionThrown:
		complain("an exception: %s", e.ExceptionDetails.Text)
	}
}

// isStatus reports whether an entry of the browser's log is about a response that the page shows on
// purpose: one of 4xx, or a 503 of the console while the database is slow.
func isStatus(e *log.Entry) bool {
	if e.Source != log.EntrySourceNetwork {
		return false
	}
	isBusy := strings.Contains(e.Text, "responded with a status of 503") && strings.Contains(e.URL, "/console/")
	return isBusy || strings.Contains(e.Text, "responded with a status of 4")
}

// asked returns the requests since the last call whose URL has part.
func (b *tab) asked(part string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if strings.Contains(r, part) {
			found = append(found, r)
		}
	}
	b.requests = nil
	return found
}

// sent compares the calls of the API since the last question with those that a reader made.
func (b *tab) sent(when string, want ...string) {
	b.t.Helper()
	if asked := b.asked("/v1/"); !slices.Equal(asked, want) {
		b.t.Errorf("%s, the page sent %q, want %q", when, asked, want)
	}
}

func (b *tab) click(selectors ...chromedp.CSS) {
	b.t.Helper()
	for _, selector := range selectors {
		b.do(chromedp.Click(selector))
	}
}

// do runs actions.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	must.Do(b.t, chromedp.Do(ctx, actions...))
}

// run runs an action that has a result.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return must.Get[T](b.t)(chromedp.Run(ctx, action))
}

// call sends a command of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], parameters P) R {
	b.t.Helper()
	return run(b,
		func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, parameters) })
}

// text returns what the element shows.
func (b *tab) text(selector chromedp.CSS) string {
	b.t.Helper()
	return run(b, chromedp.Text(selector))
}

// awaitText waits until the element shows a text that has part.
func (b *tab) awaitText(limit time.Duration, selector chromedp.CSS, part string) {
	b.t.Helper()
	expression := fmt.Sprintf("document.querySelector(%q).innerText.includes(%q)", selector, part)
	options := []chromedp.PollOption{
		chromedp.WithPollingInterval(50 * time.Millisecond),
		chromedp.WithPollingTimeout(limit),
	}
	if err := chromedp.Do(b.ctx, chromedp.Poll[chromedp.Void](expression, options...)); err != nil {
		b.t.Fatalf("%s does not show %q but %q: %v", selector, part, b.text(selector), err)
	}
}

// enter types into an empty field.
func (b *tab) enter(selector chromedp.CSS, text string) {
	b.t.Helper()
	evaluate[string](b, fmt.Sprintf("document.querySelector(%q).value = ''", selector))
	b.do(chromedp.SendKeys(selector, text))
}

// evaluate runs a script in the page and returns the result, also that of a promise.
func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// look is how a reader looks at a page.
type look struct {
	name          string
	width, height int64
	scheme        string // light or dark
	media         string // empty = screen
	isChecked     bool   // by axe-core: once in each of its colours and layouts
}

var looks = []look{
	{name: "light", width: 1440, height: 900, scheme: "light", isChecked: true},
	{name: "dark", width: 1440, height: 900, scheme: "dark"},
	{name: "tablet", width: 834, height: 1112, scheme: "light"},
	{name: "320-light", width: 320, height: 640, scheme: "light"},
	{name: "320-dark", width: 320, height: 640, scheme: "dark", isChecked: true},
	{name: "print", width: 794, height: 1123, scheme: "light", media: "print"},
}

func (b *tab) as(l look) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 600,
	})
	features := []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: l.scheme},
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}
	media := emulation.SetEmulatedMediaParams{Media: l.media, Features: features}
	call(b, emulation.SetEmulatedMedia, media)
}

// check looks at the page in every way: it must be accessible and must not need to be scrolled
// sideways.
func (b *tab) check(state string) {
	b.t.Helper()
	b.checkAs(state, looks...)
}

func (b *tab) checkAs(state string, looks ...look) {
	b.t.Helper()
	for _, l := range looks {
		b.as(l)
		none := func(what string, found []string) {
			b.t.Helper()
			if len(found) > 0 {
				b.t.Errorf("%s, %s: %s: %q", state, l.name, what, found)
			}
		}
		if width := evaluate[int64](b, "document.documentElement.scrollWidth"); width > l.width {
			b.t.Errorf("%s, %s: the page is %d pixels wide, and the window %d", state, l.name, width, l.width)
		}
		b.photograph(state, l)
		if evaluate[bool](b, `"prefix" in document.body.dataset`) { // the documentation
			none("words are broken", b.brokenWords(wordsOfText))
			none("these have scroll bars", b.scrollBars())
			if edges := b.textWidths(); len(edges) > 1 {
				b.t.Errorf("%s, %s: text ends at %d", state, l.name, edges)
			}
		}
		if evaluate[bool](b, `document.body.className === "console"`) && l.media == "" && l.width >= 360 {
			none("words are broken", b.brokenWords(wholeWords))
		}
		if l.isChecked {
			none("not accessible", b.violations())
		}
	}
	b.as(looks[0])
}

// photograph writes a picture of the whole page, and one of what fits into the window.
func (b *tab) photograph(state string, l look) {
	b.t.Helper()
	directory := os.Getenv("SCREENSHOTS")
	if directory == "" {
		return
	}
	for name, whole := range map[string]bool{"": false, "-whole": true} {
		picture := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &whole}).Data
		path := filepath.Join(directory, state+"-"+l.name+name+".png")
		must.Do(b.t, os.WriteFile(path, picture, 0o644))
	}
}

//go:embed testdata/axe.min.js.gz
var axe []byte

// axeSource returns the source of the accessibility checker.
var axeSource = sync.OnceValues(func() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(axe))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
})

// runAxe returns how many rules were checked, and a line for each element that breaks one.
const runAxe = `axe.run(document, {
	runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}).then((r) => JSON.stringify({
	passes: r.passes.length,
	violations: r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target + ": " + n.failureSummary)),
}))`

// violations returns what axe-core finds by the rules of WCAG 2.2 A and AA and its own best
// practices. The tool is evaluated by the debugger, so it is not subject to the page's policy.
func (b *tab) violations() (found []string) {
	b.t.Helper()
	if !evaluate[bool](b, "typeof axe === 'object'") {
		evaluate[bool](b, string(must.Get[[]byte](b.t)(axeSource()))+"; true")
	}
	var result struct {
		Passes     int
		Violations []string
	}
	must.Do(b.t, json.Unmarshal([]byte(evaluate[string](b, runAxe)), &result))
	if result.Passes < 10 {
		b.t.Fatalf("axe-core checked only %d rules", result.Passes)
	}
	return result.Violations
}
