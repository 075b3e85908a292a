package portal_test

import (
	"bytes"
	"compress/gzip"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"petgate/gateway/portal"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/core/plan"
	"petgate/shared/testkit/must"
)

// plans are in no order, as the directory passes them.
var plans = []portal.Plan{
	{Name: "enterprise"},
	{Name: "pro", Limits: plan.Limits{Minute: 300, Day: 10_000}},
	{Name: "business", Limits: plan.Limits{Minute: 1000, Day: 100_000}},
	{Name: "free", Limits: plan.Limits{Minute: 60, Day: 1000}},
}

func pages(t rapid.TB, cfg portal.Config) map[string]portal.Page {
	t.Helper()
	if cfg.Environment == 0 {
		cfg.Environment = apikey.Live
	}
	if cfg.API == nil {
		cfg.API = api.Pets()
	}
	return written(t, portal.New(cfg), plans)
}

func written(t rapid.TB, p *portal.Portal, plans []portal.Plan) map[string]portal.Page {
	t.Helper()
	all := p.Pages(plans)
	byPath := map[string]portal.Page{}
	for _, p := range all {
		if _, twice := byPath[p.Path]; twice {
			t.Errorf("two pages have the path %s", p.Path)
		}
		byPath[p.Path] = p
	}
	if !strings.HasSuffix(all[0].Path, portal.Home) {
		t.Errorf("the first page is %s", all[0].Path)
	}
	return byPath
}

func body(all map[string]portal.Page, path string) string { return string(all[path].Content().Body) }

// expect checks that a text has others. Those that it must not have begin with an exclamation mark.
func expect(t testing.TB, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		want, isUnwanted := strings.CutPrefix(want, "!")
		if strings.Contains(text, want) == isUnwanted {
			t.Errorf("%s has %q: %t", what, want, isUnwanted)
		}
	}
}

func TestPages(t *testing.T) {
	all, again := pages(t, portal.Config{}), pages(t, portal.Config{})
	want := map[string]string{
		"/docs": "text/html; charset=utf-8", "/docs.md": "text/markdown; charset=utf-8",
		"/docs/petgate.css": "text/css; charset=utf-8", "/docs/petgate.js": "text/javascript; charset=utf-8",
		"/favicon.ico": "image/svg+xml", "/llms.txt": "text/plain; charset=utf-8",
		"/openapi.yaml": "application/yaml", "/openapi.json": "application/json",
	}
	for _, name := range []string{"client.go", "error.go", "wait.go", "types.gen.go", "petgate.ts", "schema.d.ts"} {
		want["/docs/"+name] = "text/plain; charset=utf-8"
	}
	types := map[string]string{}
	for path, p := range all {
		types[path] = p.Type
		if p.Content().ETag != again[path].Content().ETag ||
			!regexp.MustCompile(`^W/"[\w-]{16}"$`).MatchString(p.Content().ETag) {
			t.Errorf("%s: the ETags of two starts are %s and %s", path, p.Content().ETag, again[path].Content().ETag)
		}
		r := must.Get[*gzip.Reader](t)(gzip.NewReader(bytes.NewReader(p.Content().Gzip)))
		if text, err := io.ReadAll(r); err != nil || !bytes.Equal(text, p.Content().Body) {
			t.Errorf("%s: the compressed body is another one (%v)", path, err)
		}
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	checkPages(t, api.Pets(), all)
	if etag := pages(t, portal.Config{Title: "Other"})["/docs"].Content().ETag; etag == all["/docs"].Content().ETag {
		t.Error("another title has the same ETag")
	}
}

// The page, its stylesheet and its script are small.
func TestSize(t *testing.T) {
	const scriptMax, compressedMax = 25_000, 30_000
	all, sum := pages(t, portal.Config{}), 0
	for _, path := range []string{"/docs", "/docs/petgate.css", "/docs/petgate.js"} {
		sum += len(all[path].Content().Gzip)
	}
	t.Logf("script: %d bytes; page, stylesheet and script, compressed: %d bytes",
		len(all["/docs/petgate.js"].Content().Body), sum)
	if n := len(all["/docs/petgate.js"].Content().Body); n > scriptMax {
		t.Errorf("the script has %d bytes, want at most %d", n, scriptMax)
	}
	if sum > compressedMax {
		t.Errorf("together they have %d bytes compressed, want at most %d", sum, compressedMax)
	}
}

// Both texts have everything that the document has: operations, parameters, members, statuses,
// codes, headers, plans.
func TestDocsAreComplete(t *testing.T) {
	doc := api.Pets().Document
	var want []string
	for path, item := range doc.Paths.Map() {
		want = append(want, path)
		for method, o := range item.Operations() {
			want = append(want, method, o.OperationID, o.Summary)
			for _, p := range o.Parameters {
				want = append(want, p.Value.Name)
			}
			for status, r := range o.Responses.Map() {
				want = append(want, status)
				for name := range r.Value.Headers {
					want = append(want, name)
				}
			}
		}
	}
	for name, s := range doc.Components.Schemas {
		want = append(want, name)
		for name := range s.Value.Properties {
			want = append(want, name)
		}
		for _, option := range s.Value.Enum {
			want = append(want, option.(string))
		}
	}
	want = append(want, "pets:read", "pets:write", "free", "300", "100,000", "as agreed", "5 December 2030",
		"ptg_live_")
	all := pages(t, portal.Config{})
	for _, path := range []string{"/docs", "/docs.md"} {
		expect(t, path, body(all, path), want...)
	}
}

// What an operator writes into the title is text.
func TestTitleIsText(t *testing.T) {
	const title = `<script>alert("1")</script>`
	all := pages(t, portal.Config{Title: title, Environment: apikey.Test})
	expect(t, "the page", body(all, "/docs"), "!<script>alert", "&lt;script&gt;alert", "ptg_test_", "!ptg_live_")
	if !strings.HasPrefix(body(all, "/docs.md"), "# "+title+", version 1.0.0\n") {
		t.Error("docs.md has another title")
	}
}

// The examples name the variable of the key and contain no key.
func TestSnippets(t *testing.T) {
	operations := api.Pets().Operations
	page := string(pages(t, portal.Config{})["/docs"].Content().Body)
	for _, language := range []string{"curl", "go", "typescript", "python"} {
		blocks := regexp.MustCompile(`(?s)<pre class="`+language+`".*?</pre>`).FindAllString(page, -1)
		if len(blocks) != len(operations) {
			t.Errorf("%s: %d examples of %d operations", language, len(blocks), len(operations))
		}
		for _, b := range blocks {
			expect(t, b, b, "PETGATE_TOKEN", "!ptg_")
		}
	}
}

func TestDocumentAsJSON(t *testing.T) {
	text := pages(t, portal.Config{})["/openapi.json"].Content().Body
	doc := must.Get[*openapi3.T](t)(openapi3.NewLoader().LoadFromData(text))
	must.Do(t, doc.Validate(t.Context()))
}

// What readers of each page look for first.
func TestTextsOfThePages(t *testing.T) {
	all := pages(t, portal.Config{Environment: apikey.Test})
	const (
		request = "```sh\nexport PETGATE_URL=https://…\nexport PETGATE_TOKEN=ptg_test_…\n\n" +
			"curl -i \"$PETGATE_URL/v1/pets\" \\\n  -H \"Authorization: Bearer $PETGATE_TOKEN\"\n```\n"
		refused = "\nA 429 refuses the request"
		repeat  = "`Retry-After` seconds, then send the request again.\n"
		// Word for word what the published interface says.
		replaced = "Deprecated. The replacement is GET /pets with the status filter. The list has each pet"
		// Only the script counts days: a number would be wrong a day later.
		ends = `<time datetime="2030-12-05T00:00:00Z">5 December 2030</time><span class="left"></span>.`
	)
	for path, texts := range map[string][]string{
		"/docs": {
			"PETGATE_TOKEN=ptg_test_…", `<p>A <a href="#status-429">429</a> refuses the request`,
			"<code>Retry-After</code> seconds, then send the request again.", replaced, ends, "!](#",
		},
		"/docs.md": {"## Quick start\n", request, refused, repeat, replaced, "!](#"},
		"/llms.txt": {
			"# Pet Adoption Service\n\n> Browse", request, refused, repeat, "[Reference](docs.md)",
			"[OpenAPI document](openapi.yaml)", "- `POST /v1/pets`: Add a pet", "(deprecated, ends on 5 December 2030)", "!](#",
		},
		"/openapi.yaml": {replaced},
	} {
		expect(t, path, body(all, path), texts...)
	}
}

// between returns the part of a text from after start to end.
func between(text, start, end string) string {
	_, text, _ = strings.Cut(text, start)
	text, _, _ = strings.Cut(text, end)
	return text
}

// The reference lists only the codes that an operation can be answered with: first its own, then
// those that other operations have too.
func TestCodesOfAnOperation(t *testing.T) {
	all := pages(t, portal.Config{})
	expect(t, "getQuota", between(body(all, "/docs.md"), "`GET /v1/quota`\n", "\n## "),
		"\n- 429: `quota_polling`\n", "\n- Errors that other operations have too: 400 `bad_request`; "+
			"401 `missing_api_key`, `malformed_api_key`, `invalid_api_key`; ",
		"; 403 `address_not_allowed`; ", "; 429 `too_many_failed_attempts`; ")
	own, shared, _ := strings.Cut(between(body(all, "/docs"), `id="createPet"`, "</article>"), "<details>")
	for _, code := range []string{
		"invalid_request", "unsupported_media_type", "idempotency_key_reused", "outcome_unknown",
	} {
		expect(t, "what createPet alone has", own, code)
		expect(t, "what others have too", shared, "!"+code)
	}
	for _, code := range []string{"missing_api_key", "minute_quota_exceeded", "upstream_timeout"} {
		expect(t, "what createPet alone has", own, "!"+code)
		expect(t, "what others have too", shared, code)
	}
	headers := between(body(all, "/docs.md"), "## Headers of some responses\n", "\n## ")
	for _, want := range []string{
		"`Allow`: On a 405: ", "`WWW-Authenticate`: On a 401: What is wrong", " On a 403: The scope",
		"`Link`: On a page of a list: the next page. ",
	} {
		must.Equal(t, strings.Count(headers, want), 1, "how often %q is in\n%s", want, headers)
	}
}

// Each operation shows an answer, which is the example of the document: the contract tests compare
// that with what the system sends.
func TestExamples(t *testing.T) {
	all := pages(t, portal.Config{})
	const pet = "{\n    \"id\": 1,\n    \"name\": \"Rex\",\n    \"categoryId\": 1,\n    \"status\": \"available\"\n  }"
	for id, want := range map[string]string{
		"listPets":  "Response 200\n[\n  " + pet + ",\n  {",
		"createPet": "Response 201\n{\n  \"id\": 1,\n  \"name\": \"Rex\",",
		"getPet":    "Response 200\n{\n  \"id\": 1,",
		"getQuota":  "Response 200\n{\n  \"plan\": \"free\",\n  \"tenant\": \"ten_",
		"getUsage":  "Response 200\n{\n  \"by\": \"day\",",
	} {
		operation := between(body(all, "/docs"), `<article class="operation split" id="`+id+`"`, "</article>")
		_, shown, _ := strings.Cut(operation, `<p class="title">`)
		shown = html.UnescapeString(regexp.MustCompile(`</p><pre[^>]*><code>`).ReplaceAllString(shown, "\n"))
		if !strings.HasPrefix(shown, want) {
			t.Errorf("%s shows %.120q, want %q", id, shown, want)
		}
	}
	expect(t, "the page", html.UnescapeString(body(all, "/docs")), `-H "Idempotency-Key: $(openssl rand -hex 16)"`,
		`client.CreatePet(ctx, petgate.NewPet{Name: "Rex", CategoryID: 1}, nil)`,
		`await client.createPet({ name: "Rex", categoryId: 1 })`, `"Idempotency-Key": str(uuid.uuid4()),`)
}

// The plans on the pages are those that are passed, in the order of their limits. Only the pages
// with plans change.
func TestPlansAndBansInForce(t *testing.T) {
	rule := ban.Product
	rule.For, rule.Max = 90*time.Second, 2*time.Hour
	p := portal.New(portal.Config{API: api.Pets(), Environment: apikey.Live, Bans: rule})
	before := written(t, p, plans)
	after := written(t, p, append([]portal.Plan{
		{Name: "gold", Limits: plan.Limits{Minute: 301, Day: 7}},
		{Name: "half", Limits: plan.Limits{Minute: 5, Month: 5000}},
	}, plans[:2]...))
	for path, one := range after {
		hasChanged := one.Content().ETag != before[path].Content().ETag
		must.Equal(t, hasChanged, path == "/docs" || path == "/docs.md", "whether %s has changed", path)
	}
	expect(t, "/docs.md", body(after, "/docs.md"), "| requests in a month |\n|---|---|---|---|\n"+
		"| half | 5 | no limit | 5,000 |\n| pro | 300 | 10,000 | no limit |\n| gold | 301 | 7 | no limit |\n"+
		"| enterprise | as agreed | as agreed | as agreed |\n\n", "!| free |")
	expect(t, "/docs.md without limits of a month", body(before, "/docs.md"), "!in a month |")
	expect(t, "/docs", body(after, "/docs"), `<tr><th scope="row">gold</th><td class="number">301</td>`+
		`<td class="number">7</td><td class="number">no limit</td></tr>`)
	off := pages(t, portal.Config{})
	for _, path := range []string{"/docs", "/docs.md", "/llms.txt"} {
		expect(t, path, body(before, path), "is banned: for 1m30s the first time, then for longer, up to 2h.")
		expect(t, path+" without bans", body(off, path), "!is banned: ")
	}
}
