package portal_test

import (
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"petgate/gateway/portal"
	"petgate/shared/api"
	"petgate/shared/testkit/golden"
	"petgate/shared/testkit/must"
)

func load(t testing.TB, name string) *api.API {
	t.Helper()
	return must.Get[*api.API](t)(api.Load(name, must.Get[[]byte](t)(os.ReadFile(name))))
}

var (
	reference = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	identity  = regexp.MustCompile(` id="([^"]*)"`)
)

// checkPages checks what holds for the pages of each document: every operation is on a page, every
// reference leads to a page and an element, no ID is there twice, nothing of the document is
// markup, and nothing is inline that the policy of the pages forbids.
func checkPages(t rapid.TB, a *api.API, all map[string]portal.Page) {
	t.Helper()
	ids := map[string]bool{}
	operations := 0
	for at, p := range all {
		for _, m := range identity.FindAllStringSubmatch(string(p.Content().Body), -1) {
			if strings.HasPrefix(p.Type, "text/html") && ids[at+"#"+m[1]] {
				t.Fatalf("%s has two elements with the ID %s", at, m[1])
			}
			ids[at+"#"+m[1]] = true
		}
	}
	for at, p := range all {
		if !strings.HasPrefix(p.Type, "text/html") {
			continue
		}
		page := string(p.Content().Body)
		operations += strings.Count(page, `<article class="operation`)
		if found := regexp.MustCompile(`(?i)<script>|<[^>]* (on\w+|style)=|href="javascript:|<img|<style`).FindString(page); found != "" {
			t.Fatalf("%s has %s", at, found)
		}
		for _, m := range reference.FindAllStringSubmatch(page, -1) {
			target, fragment, _ := strings.Cut(html.UnescapeString(m[1]), "#")
			if strings.Contains(target, ":") {
				continue
			}
			if target = path.Join(path.Dir(at), target); m[1][0] == '#' {
				target = at
			}
			if _, found := all[target]; !found || fragment != "" && !ids[target+"#"+fragment] {
				t.Fatalf("%s refers to %s, which is not there", at, m[1])
			}
		}
	}
	if operations != len(a.Operations) {
		t.Fatalf("the pages have %d operations, want %d", operations, len(a.Operations))
	}
	llms := string(all[a.OwnPrefix+"/llms.txt"].Content().Body)
	for _, o := range a.Operations {
		if !strings.Contains(llms, "`"+o.Method+" "+o.Path+"`") {
			t.Fatalf("llms.txt does not have %s %s", o.Method, o.Path)
		}
	}
}

// Whatever a document has or lacks, its pages are complete.
func TestHardDocument(t *testing.T) {
	a := load(t, "testdata/hard.yaml")
	all := pages(t, portal.Config{API: a})
	checkPages(t, a, all)
	page, text := html.UnescapeString(string(all["/docs"].Content().Body)), string(all["/docs.md"].Content().Body)
	for _, want := range []string{
		"First <strong>paragraph</strong> with a <a href=\"https://example.com\">link</a>, <code>code</code> and tags.",
		"<li>a list</li>", "<td>2</td>", "A paragraph of HTML.",
		`curl -i -X PUT "$PETGATE_URL/base/files/a%20b.json"`, "-H \"X-Trace: a'b \\\"\\$c\\\" \\`d\\`\"", "--data-binary @file",
		"inner.deep[].price", "map of ", "array of ", `/base/limits?filter=filter&ids=1%2C2&kind=small"`,
		`-F 'file=string'`, "-d 'a=1+%26+2&b=true'", "No key is needed.", "// own",
		"Cat</a> or <a href=\"#schema-Dog\">Dog", "application/octet-stream", `<span class="status sd">default</span>`, `<span class="status s4">4XX</span>`,
		"\"a\": \"</script>`' é\"", `data-quota="/v1/quota"`,
		"<p class=\"scope\">A request costs 5 of your limits.</p>", "responses have <code>X-Request-Cost</code>", "<dt><code>month_quota_exceeded</code>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	_, operations, _ := strings.Cut(page, `id="operations"`)
	operations, _, _ = strings.Cut(operations, `<section id="errors"`)
	golden.Check(t, "hard", text+operations)
	for _, foreign := range []string{"<dt><code>pet_not_found</code>", "| `pet_not_found`", "<dt><code>idempotency_key_reused</code>", "petgate.Client", "client.go"} {
		if strings.Contains(page, foreign) || strings.Contains(text, foreign) {
			t.Errorf("the pages of another API have %s", foreign)
		}
	}
	if !strings.Contains(page, "upstream_timeout") {
		t.Error("the page lacks the gateway's own errors")
	}
}

// Under a prefix of their own, the pages refer to one another and to the API as before.
func TestOwnPrefix(t *testing.T) {
	for _, document := range []*api.API{api.Pets(), large(t, 60, 70, false)} {
		a := must.Get[*api.API](t)(api.LoadWith("prefixed", document.Source(), "/own/part"))
		all := pages(t, portal.Config{API: a})
		checkPages(t, a, all)
		if page := string(all["/own/part/docs"].Content().Body); !strings.Contains(
			page, `data-root="../../" data-quota="/own/part/quota"`,
		) {
			t.Error("the page does not refer to the root of the API")
		}
		if len(document.Operations) > 50 &&
			!strings.Contains(string(all["/own/part/docs/part0"].Content().Body), `data-root="../../../"`) {
			t.Error("the page of a group does not refer to the root of the API")
		}
	}
}

// large returns a document with n operations in groups, and with a schema for every tenth, which may be linked: it then refers to others.
func large(t testing.TB, n, group int, isLinked bool) *api.API {
	t.Helper()
	paths := map[string]any{}
	for i := range n {
		paths[fmt.Sprintf("/v1/part%d/thing%d/{id}", i/group, i)] = map[string]any{"get": map[string]any{
			"operationId": fmt.Sprintf(
				"getThing%d", i,
			), "summary": fmt.Sprintf("Get thing %d", i), "description": strings.Repeat("What it does. ", 20),
			"parameters": []any{map[string]any{"name": "id", "in": "path", "required": true, "schema": map[string]any{"type": "integer"}}},
			"responses": map[string]any{
				"200": map[string]any{
					"description": "It.",
					"content": map[string]any{
						"application/json": map[string]any{
							"schema": map[string]any{"$ref": fmt.Sprintf("#/components/schemas/Thing%d", i/10)},
						},
					},
				},
			},
		}}
	}
	schemas := map[string]any{}
	for i := range n/10 + 1 {
		members := map[string]any{"id": map[string]any{"type": "integer"}, "name": map[string]any{"type": "string"}}
		if isLinked {
			for _, to := range []int{i + 1, 2 * i} {
				members[fmt.Sprintf("to%d", to)] = map[string]any{
					"$ref": fmt.Sprintf("#/components/schemas/Thing%d", to%(n/10+1)),
				}
			}
		}
		schemas[fmt.Sprintf("Thing%d", i)] = map[string]any{"type": "object", "properties": members}
	}
	text, err := json.Marshal(
		map[string]any{
			"openapi":    "3.0.3",
			"info":       map[string]any{"title": "Large", "version": "1"},
			"paths":      paths,
			"components": map[string]any{"schemas": schemas},
		},
	)
	must.Do(t, err)
	return must.Get[*api.API](t)(api.Load("large.json", text))
}

// A large document has a page for each group of operations, here for each first segment of the paths, because there are no tags.
func TestLargeDocument(t *testing.T) {
	const pageMax = 100_000 // bytes, compressed, of the largest page
	a := large(t, 300, 70, false)
	began := time.Now()
	all := pages(t, portal.Config{API: a})
	largest, sum := 0, 0
	for _, p := range all {
		largest, sum = max(largest, len(p.Content().Gzip)), sum+len(p.Content().Body)+len(p.Content().Gzip)
	}
	took := time.Since(began)
	checkPages(t, a, all)
	t.Logf(
		"figure: the documentation of 300 operations: %d pages, the largest of %d bytes compressed, %d kB in all, written in %v",
		len(all),
		largest,
		sum/1000,
		took,
	)
	if largest > pageMax {
		t.Errorf("a page has %d bytes", largest)
	}
	for at, want := range map[string]string{
		"/docs/part0": `<h1>part0</h1>`, "/docs/part0-2": `<h1>part0, part 2</h1>`, "/docs": `<a href="docs/part4#getThing299" title="GET /v1/part4/thing299/{id}">`,
		"/docs.md": "(docs/part0-2.md): 20", "/docs/part4.md": "`GET /v1/part4/thing299/{id}`",
	} {
		if !strings.Contains(string(all[at].Content().Body), want) {
			t.Errorf("%s does not have %q", at, want)
		}
	}
}

// A gateway does not wait for its pages: of a document whose schemas all refer to one another, it reads each operation and each schema once.
func TestPagesAreWrittenLater(t *testing.T) {
	a := large(t, 500, 20, true)
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	began := allocated()
	all := pages(t, portal.Config{API: a})
	made := allocated()
	checkPages(t, a, all)
	if at, late := made-began, allocated()-made; at > late/5 {
		t.Errorf("the start allocates %d kB, the pages %d kB", at/1000, late/1000)
	}
}

// What all pages take grows with the document, not with its square.
func TestManyGroups(t *testing.T) {
	size := func(operations int) (sum int) {
		for _, p := range pages(t, portal.Config{API: large(t, operations, 4, false)}) {
			sum += len(p.Content().Body)
		}
		return sum
	}
	if one, four := size(110), size(440); four > 5*one {
		t.Errorf("the pages of 110 operations have %d bytes, those of 440 have %d", one, four)
	}
}

// A document that is loaded has pages, whatever it is.
func FuzzDocument(f *testing.F) {
	name := rapid.SampledFrom(
		[]string{"A", "B", "a-b", "Ünder", "x y", "limits", "", "<i>", "getQuota", "operations", "key-field"},
	)
	text := rapid.OneOf(name, rapid.String())
	var schemaOf func(depth int) *rapid.Generator[any]
	schemaOf = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			if depth == 0 || rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				return map[string]any{
					"$ref": "#/components/schemas/" + rapid.SampledFrom([]string{"A", "B"}).Draw(t, "ref"),
				}
			}
			s := map[string]any{}
			inner := schemaOf(depth - 1)
			add := func(key string, g *rapid.Generator[any]) {
				if rapid.IntRange(0, 2).Draw(t, key) == 0 {
					s[key] = g.Draw(t, key)
				}
			}
			add(
				"type",
				rapid.SampledFrom(
					[]any{
						"object", "array", "string", "integer", "number", "boolean",
						[]string{"string", "null"},
						[]string{"object", "array"},
					},
				),
			)
			add("properties", rapid.Map(rapid.MapOf(name, inner), func(m map[string]any) any { return m }))
			for _, list := range []string{"allOf", "anyOf", "oneOf"} {
				add(list, rapid.Map(rapid.SliceOfN(inner, 1, 3), func(m []any) any { return m }))
			}
			add("items", inner)
			add("additionalProperties", inner)
			add("required", rapid.Just[any]([]string{"A", "B"}))
			add("description", rapid.Map(text, func(s string) any { return s }))
			add("example", rapid.SampledFrom([]any{"x", 1, true, map[string]any{"A": []any{nil}}, []any{}}))
			add("enum", rapid.Just[any]([]any{"a", 1, map[string]any{}}))
			add("format", rapid.SampledFrom([]any{"date-time", "int64", "binary"}))
			return s
		})
	}
	schema := schemaOf(3)
	media := rapid.Map(
		rapid.MapOfN(
			rapid.SampledFrom(
				[]string{
					"application/json", "text/csv", "multipart/form-data", "application/x-www-form-urlencoded",
					"image/png", "a/b+json", "*/*",
				},
			),
			rapid.Map(schema, func(s any) any { return map[string]any{"schema": s} }),
			0,
			2,
		),
		func(m map[string]any) any { return m },
	)
	response := rapid.Custom(func(t *rapid.T) any {
		return map[string]any{"description": text.Draw(t, "description"), "content": media.Draw(t, "content")}
	})
	operation := rapid.Custom(func(t *rapid.T) any {
		o := map[string]any{
			"summary": text.Draw(
				t, "summary",
			), "description": text.Draw(t, "description"), "tags": rapid.SliceOfN(name, 0, 2).Draw(t, "tags"),
			"responses": rapid.MapOfN(
				rapid.SampledFrom([]string{"200", "default", "404", "5XX", "204"}),
				response,
				1,
				3,
			).Draw(t, "responses"),
		}
		if rapid.Bool().Draw(t, "body") {
			o["requestBody"] = map[string]any{"content": media.Draw(t, "body")}
		}
		if rapid.Bool().Draw(t, "parameters") {
			o["parameters"] = []any{
				map[string]any{
					"name":     "q",
					"in":       "query",
					"schema":   schema.Draw(t, "schema"),
					"required": rapid.Bool().Draw(t, "required"),
				},
			}
		}
		return o
	})
	for seed := range uint64(8) {
		bits := make([]byte, 256<<10)
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(bits)
		f.Add(bits)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		paths := map[string]any{}
		for i := range rapid.SampledFrom([]int{1, 2, 3, 17, 60}).Draw(t, "paths") {
			paths[fmt.Sprintf("/p%d", i)] = map[string]any{
				strings.ToLower(rapid.SampledFrom([]string{http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPatch}).Draw(t, "method")): operation.Draw(
					t,
					"operation",
				),
			}
		}
		text, err := json.Marshal(map[string]any{
			"openapi": rapid.SampledFrom([]string{"3.0.3", "3.1.0"}).Draw(
				t, "version",
			), "info": map[string]any{"title": name.Draw(t, "title"), "version": "1"},
			"tags": []any{map[string]any{"name": name.Draw(t, "tag")}}, "paths": paths,
			"components": map[string]any{"schemas": map[string]any{"A": schema.Draw(t, "A"), "B": schema.Draw(t, "B")}},
		})
		must.Do(t, err)
		a, err := api.Load("any.json", text)
		if err != nil {
			return // the document is refused
		}
		checkPages(t, a, pages(t, portal.Config{API: a}))
	}))
}
