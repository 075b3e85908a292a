package portal_test

import (
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
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
	inline    = regexp.MustCompile(`(?i)<script>|<[^>]* (on\w+|style)=|href="javascript:|<img|<style`)
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
		if found := inline.FindString(page); found != "" {
			t.Fatalf("%s has %s", at, found)
		}
		for _, m := range reference.FindAllStringSubmatch(page, -1) {
			target, fragment, _ := strings.Cut(html.UnescapeString(m[1]), "#")
			if strings.Contains(target, ":") {
				continue
			}
			target = path.Join(path.Dir(at), target)
			if m[1][0] == '#' {
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
	page, text := html.UnescapeString(body(all, "/docs")), body(all, "/docs.md")
	expect(t, "the page", page,
		"First <strong>paragraph</strong> with a <a href=\"https://example.com\">link</a>, <code>code</code> and tags.",
		"<li>a list</li>", "<td>2</td>", "A paragraph of HTML.",
		`curl -i -X PUT "$PETGATE_URL/base/files/a%20b.json"`, "-H \"X-Trace: a'b \\\"\\$c\\\" \\`d\\`\"",
		"--data-binary @file", "inner.deep[].price", "map of ", "array of ",
		`/base/limits?filter=filter&ids=1%2C2&kind=small"`, `-F 'file=string'`, "-d 'a=1+%26+2&b=true'",
		"No key is needed.", "// own", "Cat</a> or <a href=\"#schema-Dog\">Dog", "application/octet-stream",
		`<span class="status sd">default</span>`, `<span class="status s4">4XX</span>`,
		"\"a\": \"</script>`' é\"", `data-quota="/v1/quota"`, "<p class=\"scope\">A request costs 5 of your limits.</p>",
		"responses have <code>X-Request-Cost</code>", "<dt><code>month_quota_exceeded</code>", "upstream_timeout")
	_, operations, _ := strings.Cut(page, `id="operations"`)
	operations, _, _ = strings.Cut(operations, `<section id="errors"`)
	golden.Check(t, "hard", text+operations)
	expect(t, "the pages of another API", page+text, "!<dt><code>pet_not_found</code>", "!| `pet_not_found`",
		"!<dt><code>idempotency_key_reused</code>", "!petgate.Client", "!client.go")
}

// Under a prefix of their own, the pages refer to one another and to the API as before.
func TestOwnPrefix(t *testing.T) {
	for _, document := range []*api.API{api.Pets(), large(t, 60, 70, false)} {
		a := must.Get[*api.API](t)(api.LoadWith("prefixed", document.Source(), "/own/part"))
		all := pages(t, portal.Config{API: a})
		checkPages(t, a, all)
		expect(t, "the page", body(all, "/own/part/docs"), `data-root="../../" data-quota="/own/part/quota"`)
		if len(document.Operations) > 50 {
			expect(t, "the page of a group", body(all, "/own/part/docs/part0"), `data-root="../../../"`)
		}
	}
}

// object is a JSON object.
type object = map[string]any

func schemaOf(name string, number int) object {
	return object{"$ref": fmt.Sprintf("#/components/schemas/%s%d", name, number)}
}

// large returns a document with n operations in groups, and with a schema for every tenth, which
// may be linked: it then refers to others.
func large(t testing.TB, n, group int, isLinked bool) *api.API {
	t.Helper()
	paths, schemas := object{}, object{}
	for i := range n {
		content := object{"application/json": object{"schema": schemaOf("Thing", i/10)}}
		paths[fmt.Sprintf("/v1/part%d/thing%d/{id}", i/group, i)] = object{"get": object{
			"operationId": fmt.Sprintf("getThing%d", i),
			"summary":     fmt.Sprintf("Get thing %d", i),
			"description": strings.Repeat("What it does. ", 20),
			"parameters":  []any{object{"name": "id", "in": "path", "required": true, "schema": object{"type": "integer"}}},
			"responses":   object{"200": object{"description": "It.", "content": content}},
		}}
	}
	for i := range n/10 + 1 {
		members := object{"id": object{"type": "integer"}, "name": object{"type": "string"}}
		if isLinked {
			for _, to := range []int{i + 1, 2 * i} {
				members[fmt.Sprintf("to%d", to)] = schemaOf("Thing", to%(n/10+1))
			}
		}
		schemas[fmt.Sprintf("Thing%d", i)] = object{"type": "object", "properties": members}
	}
	text := must.Get[[]byte](t)(json.Marshal(object{
		"openapi": "3.0.3", "info": object{"title": "Large", "version": "1"},
		"paths": paths, "components": object{"schemas": schemas},
	}))
	return must.Get[*api.API](t)(api.Load("large.json", text))
}

// A large document has a page for each group of operations, here for each first segment of the
// paths, because there are no tags.
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
	t.Logf("figure: the documentation of 300 operations: %d pages, the largest of %d bytes compressed, "+
		"%d kB in all, written in %v", len(all), largest, sum/1000, took)
	if largest > pageMax {
		t.Errorf("a page has %d bytes", largest)
	}
	for at, want := range map[string]string{
		"/docs/part0": `<h1>part0</h1>`, "/docs/part0-2": `<h1>part0, part 2</h1>`,
		"/docs":    `<a href="docs/part4#getThing299" title="GET /v1/part4/thing299/{id}">`,
		"/docs.md": "(docs/part0-2.md): 20", "/docs/part4.md": "`GET /v1/part4/thing299/{id}`",
	} {
		expect(t, at, body(all, at), want)
	}
}

// A gateway does not wait for its pages: of a document whose schemas all refer to one another, it
// reads each operation and each schema once.
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
	for seed := range uint64(8) {
		bits := make([]byte, 256<<10)
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(bits)
		f.Add(bits)
	}
	schema := drawSchema(3)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		paths := object{}
		for i := range rapid.SampledFrom([]int{1, 2, 3, 17, 60}).Draw(t, "paths") {
			method := rapid.SampledFrom([]string{"get", "post", "head", "patch"}).Draw(t, "method")
			paths[fmt.Sprintf("/p%d", i)] = object{method: drawOperation(schema).Draw(t, "operation")}
		}
		text := must.Get[[]byte](t)(json.Marshal(object{
			"openapi":    rapid.SampledFrom([]string{"3.0.3", "3.1.0"}).Draw(t, "version"),
			"info":       object{"title": names.Draw(t, "title"), "version": "1"},
			"tags":       []any{object{"name": names.Draw(t, "tag")}},
			"paths":      paths,
			"components": object{"schemas": object{"A": schema.Draw(t, "A"), "B": schema.Draw(t, "B")}},
		}))
		if a, err := api.Load("any.json", text); err == nil {
			checkPages(t, a, pages(t, portal.Config{API: a}))
		}
	}))
}

var (
	names = rapid.SampledFrom(
		[]string{"A", "B", "a-b", "Ünder", "x y", "limits", "", "<i>", "getQuota", "operations", "key-field"})
	texts = rapid.OneOf(names, rapid.String())
)

// anyOf makes a generator one of any value.
func anyOf[V any](g *rapid.Generator[V]) *rapid.Generator[any] {
	return rapid.Map(g, func(v V) any { return v })
}

func drawSchema(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if depth == 0 || rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			return object{"$ref": "#/components/schemas/" + rapid.SampledFrom([]string{"A", "B"}).Draw(t, "ref")}
		}
		s, inner := object{}, drawSchema(depth-1)
		add := func(key string, g *rapid.Generator[any]) {
			if rapid.IntRange(0, 2).Draw(t, key) == 0 {
				s[key] = g.Draw(t, key)
			}
		}
		add("type", rapid.SampledFrom([]any{
			"object", "array", "string", "integer", "number", "boolean",
			[]string{"string", "null"},
			[]string{"object", "array"},
		}))
		add("properties", anyOf(rapid.MapOf(names, inner)))
		for _, list := range []string{"allOf", "anyOf", "oneOf"} {
			add(list, anyOf(rapid.SliceOfN(inner, 1, 3)))
		}
		add("items", inner)
		add("additionalProperties", inner)
		add("required", rapid.Just[any]([]string{"A", "B"}))
		add("description", anyOf(texts))
		add("example", rapid.SampledFrom([]any{"x", 1, true, object{"A": []any{nil}}, []any{}}))
		add("enum", rapid.Just[any]([]any{"a", 1, object{}}))
		add("format", rapid.SampledFrom([]any{"date-time", "int64", "binary"}))
		return s
	})
}

func drawOperation(schema *rapid.Generator[any]) *rapid.Generator[any] {
	kinds := rapid.SampledFrom([]string{
		"application/json", "text/csv", "multipart/form-data", "application/x-www-form-urlencoded", "image/png",
		"a/b+json", "*/*",
	})
	content := rapid.MapOfN(kinds, rapid.Map(schema, func(s any) any { return object{"schema": s} }), 0, 2)
	response := rapid.Custom(func(t *rapid.T) any {
		return object{"description": texts.Draw(t, "description"), "content": content.Draw(t, "content")}
	})
	statuses := rapid.SampledFrom([]string{"200", "default", "404", "5XX", "204"})
	return rapid.Custom(func(t *rapid.T) any {
		o := object{
			"summary":     texts.Draw(t, "summary"),
			"description": texts.Draw(t, "description"),
			"tags":        rapid.SliceOfN(names, 0, 2).Draw(t, "tags"),
			"responses":   rapid.MapOfN(statuses, response, 1, 3).Draw(t, "responses"),
		}
		if rapid.Bool().Draw(t, "body") {
			o["requestBody"] = object{"content": content.Draw(t, "body")}
		}
		if rapid.Bool().Draw(t, "parameters") {
			o["parameters"] = []any{object{
				"name": "q", "in": "query",
				"schema": schema.Draw(t, "schema"), "required": rapid.Bool().Draw(t, "required"),
			}}
		}
		return o
	})
}
