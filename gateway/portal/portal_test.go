package portal_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"petgate/gateway/portal"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
)

func pages(t *testing.T, cfg portal.Config) map[string]portal.Page {
	t.Helper()
	if cfg.Environment == 0 {
		cfg.Environment = apikey.Live
	}
	cfg.API = api.Pets()
	all, err := portal.Pages(cfg)
	if err != nil {
		t.Fatal(err)
	}
	byPath := map[string]portal.Page{}
	for _, p := range all {
		byPath[p.Path] = p
	}
	return byPath
}

func TestPages(t *testing.T) {
	all, again := pages(t, portal.Config{}), pages(t, portal.Config{})
	want := map[string]string{
		"/docs": "text/html; charset=utf-8", "/docs/petgate.css": "text/css; charset=utf-8", "/docs/petgate.js": "text/javascript; charset=utf-8",
		"/docs.md": "text/markdown; charset=utf-8", "/llms.txt": "text/plain; charset=utf-8",
		"/openapi.yaml": "application/yaml", "/openapi.json": "application/json",
	}
	types := map[string]string{}
	for path, p := range all {
		types[path] = p.Type
		if p.ETag != again[path].ETag || !regexp.MustCompile(`^W/"[\w-]{16}"$`).MatchString(p.ETag) {
			t.Errorf("%s: the ETags of two starts are %s and %s", path, p.ETag, again[path].ETag)
		}
		r, err := gzip.NewReader(bytes.NewReader(p.Gzip))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(r); err != nil || !bytes.Equal(text, p.Body) {
			t.Errorf("%s: the compressed body is another one (%v)", path, err)
		}
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Error(diff)
	}
	if etag := pages(t, portal.Config{Title: "Other"})["/docs"].ETag; etag == all["/docs"].ETag {
		t.Error("another title has the same ETag")
	}
}

// The page, its stylesheet and its script are small.
func TestSize(t *testing.T) {
	const scriptMax, compressedMax = 20_000, 30_000
	all, sum := pages(t, portal.Config{}), 0
	for _, path := range []string{"/docs", "/docs/petgate.css", "/docs/petgate.js"} {
		sum += len(all[path].Gzip)
	}
	t.Logf("script: %d bytes; page, stylesheet and script, compressed: %d bytes", len(all["/docs/petgate.js"].Body), sum)
	if n := len(all["/docs/petgate.js"].Body); n > scriptMax {
		t.Errorf("the script has %d bytes, want at most %d", n, scriptMax)
	}
	if sum > compressedMax {
		t.Errorf("together they have %d bytes compressed, want at most %d", sum, compressedMax)
	}
}

// Both texts have everything that the document has: operations, parameters, members, statuses, codes, headers, plans.
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
	want = append(want, "pets:read", "pets:write", "free", "300", "as agreed", "5 December 2030", "ptg_live_")
	all := pages(t, portal.Config{})
	for path, number := range map[string]string{"/docs": "100,000", "/docs.md": "100000"} {
		text := string(all[path].Body)
		for _, w := range append(want, number) {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not have %q", path, w)
			}
		}
	}
}

// A number that is right when the gateway starts is wrong a day later: only the script counts days.
func TestPageCountsNoDays(t *testing.T) {
	page := string(pages(t, portal.Config{})["/docs"].Body)
	if !strings.Contains(page, `<time datetime="2030-12-05T00:00:00Z">5 December 2030</time><span class="left"></span>.`) {
		t.Error("the page does not have the date of the sunset, and a place for the days until it")
	}
}

// What an operator writes into the title is text.
func TestTitleIsText(t *testing.T) {
	const title = `<script>alert("1")</script>`
	all := pages(t, portal.Config{Title: title, Environment: apikey.Test})
	page := string(all["/docs"].Body)
	if strings.Contains(page, "<script>alert") || !strings.Contains(page, "&lt;script&gt;alert") {
		t.Error("the title is markup")
	}
	if !strings.Contains(page, "ptg_test_") || strings.Contains(page, "ptg_live_") {
		t.Error("a page for test keys shows others")
	}
	if !strings.HasPrefix(string(all["/docs.md"].Body), "# "+title+", version 1.0.0\n") {
		t.Error("docs.md has another title")
	}
}

// The policy of the pages allows neither inline scripts nor inline styles, and no other origin. References are relative.
func TestPageObeysItsPolicy(t *testing.T) {
	page := string(pages(t, portal.Config{})["/docs"].Body)
	if found := regexp.MustCompile(`(?i) (style|on\w+)=|<style|<script>|javascript:`).FindAllString(page, -1); found != nil {
		t.Errorf("inline: %q", found)
	}
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		target, id := m[1], strings.TrimPrefix(m[1], "#")
		switch {
		case id != target:
			if strings.Count(page, ` id="`+id+`"`) != 1 {
				t.Errorf("nothing, or more than one thing, has the id of %s", target)
			}
		case !slices.Contains([]string{"docs/petgate.css", "docs/petgate.js", "openapi.yaml", "openapi.json", "docs.md", "llms.txt"}, target) &&
			!strings.HasPrefix(target, "data:image/svg+xml,"):
			t.Errorf("a reference to %s", target)
		}
	}
}

// The examples name the variable of the key and contain no key.
func TestSnippets(t *testing.T) {
	operations := api.Pets().Operations
	page := string(pages(t, portal.Config{})["/docs"].Body)
	for _, language := range []string{"curl", "go", "typescript", "python"} {
		blocks := regexp.MustCompile(`(?s)<pre class="`+language+`".*?</pre>`).FindAllString(page, -1)
		if len(blocks) != len(operations) {
			t.Errorf("%s: %d examples of %d operations", language, len(blocks), len(operations))
		}
		for _, b := range blocks {
			if !strings.Contains(b, "PETGATE_TOKEN") || strings.Contains(b, "ptg_") {
				t.Errorf("%s: the key is not read from PETGATE_TOKEN: %s", language, b)
			}
		}
	}
}

func TestDocumentAsJSON(t *testing.T) {
	body := pages(t, portal.Config{})["/openapi.json"].Body
	doc, err := openapi3.NewLoader().LoadFromData(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	want := api.Pets().Document
	f := func(doc *openapi3.T) (v any) {
		text, err := json.Marshal(doc)
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if diff := cmp.Diff(f(want), f(doc)); diff != "" {
		t.Error(diff)
	}
}

// The page and both texts begin with a first request, and say what a 429 means.
func TestQuickStart(t *testing.T) {
	all := pages(t, portal.Config{Environment: apikey.Test})
	const request = "export PETGATE_TOKEN=ptg_test_…\n\ncurl -i \"$PETGATE_URL/v1/pets\" \\\n  -H \"Authorization: Bearer $PETGATE_TOKEN\"\n"
	for path, want := range map[string][]string{
		"/docs":     {"PETGATE_TOKEN=ptg_test_…", `<p>A <a href="#status-429">429</a> refuses the request`, "<code>Retry-After</code> seconds, then send the request again."},
		"/docs.md":  {"## Quick start\n", "```sh\nexport PETGATE_URL=https://…\n" + request + "```\n", "\nA 429 refuses the request", "`Retry-After` seconds, then send the request again.\n"},
		"/llms.txt": {"```sh\nexport PETGATE_URL=https://…\n" + request + "```\n", "\nA 429 refuses the request", "`Retry-After` seconds, then send the request again.\n"},
	} {
		text := string(all[path].Body)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not have %q", path, w)
			}
		}
		if strings.Contains(text, "](#") {
			t.Errorf("%s has a link to an element as Markdown", path)
		}
	}
}

// The pages say what the published interface says of the deprecated operation, word for word.
func TestReplacementOfADeprecatedOperation(t *testing.T) {
	all := pages(t, portal.Config{})
	for _, path := range []string{"/docs", "/docs.md", "/openapi.yaml"} {
		if !strings.Contains(string(all[path].Body), "Deprecated. The replacement is GET /pets with the status filter. The list has each pet") {
			t.Errorf("%s does not say it", path)
		}
	}
}

func TestLlms(t *testing.T) {
	text := string(pages(t, portal.Config{})["/llms.txt"].Body)
	for _, want := range []string{
		"# Pet Adoption Service\n\n> Browse", "[Reference](docs.md)", "[OpenAPI document](openapi.yaml)", "- `POST /v1/pets`: Add a pet",
		"(deprecated, ends on 5 December 2030)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// The reference lists only the codes that an operation can be answered with, and all headers.
func TestCodesOfAnOperation(t *testing.T) {
	text := string(pages(t, portal.Config{})["/docs.md"].Body)
	_, operation, _ := strings.Cut(text, "`GET /v1/quota`\n")
	operation, _, _ = strings.Cut(operation, "\n## ")
	for _, want := range []string{"\n- 400: `bad_request`\n", "\n- 403: `address_not_allowed`\n", "\n- 429: `quota_polling`, `too_many_failed_attempts`\n"} {
		if !strings.Contains(operation, want) {
			t.Errorf("%q is missing in\n%s", want, operation)
		}
	}
	_, headers, _ := strings.Cut(text, "## Headers of some responses\n")
	headers, _, _ = strings.Cut(headers, "\n## ")
	for _, want := range []string{
		"`Allow`: On a 405: ", "`WWW-Authenticate`: On a 401: What is wrong", " On a 403: The scope", "`Location`: On a 201: ",
		"`Idempotent-Replayed`: On a 201: ", "`Link`: On a page of a list: the next page. ",
	} {
		if strings.Count(headers, want) != 1 {
			t.Errorf("%q is missing, or repeated, in\n%s", want, headers)
		}
	}
}
