package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// describe returns a document with these paths.
func describe(paths string) string {
	return "openapi: 3.1.0\ninfo: {title: T, version: '2'}\npaths:\n" + paths
}

func TestLoadReadsOperations(t *testing.T) {
	got, err := api.Load("t.yaml", []byte(`
openapi: 3.0.1
info: {title: Orders, version: '7'}
servers:
  - url: https://{host}/{base}/v2/
    variables: {host: {default: api.example.com}, base: {default: shop}}
  - url: http://localhost
paths:
  /orders:
    servers: [{url: https://elsewhere.example}]
    parameters:
      - {name: idempotency-key, in: header, schema: {type: string}}
    get: {operationId: listOrders, x-unknown: {a: [1]}, x-cost: 1000, servers: [{url: /else}], security: [{other: []}]}
    post: {x-scope: 'orders:write', x-upstream: orders, parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]}
    head: {operationId: countOrders, x-cost: 1}
    options: {operationId: askOrders}
  /orders/{id}/items/{name}.json:
    parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
    delete: {deprecated: true}
    patch: {x-sunset: '2030-12-05T00:00:00Z', x-deprecated-at: '2026-01-01T00:00:00+01:00', x-successor: '/orders/{id}', x-stability: beta}
  /health:
    get: {x-public: true, x-cost: 0}
`))
	must.Do(t, err)
	const items = "/shop/v2/orders/{id}/items/{name}.json"
	want := []api.Operation{
		{ID: "GET /shop/v2/health", Method: http.MethodGet, Path: "/shop/v2/health", IsPublic: true},
		{ID: "listOrders", Method: http.MethodGet, Path: "/shop/v2/orders", Scope: "read", Cost: 1000},
		{ID: "countOrders", Method: http.MethodHead, Path: "/shop/v2/orders", Scope: "read", Cost: 1},
		{ID: "askOrders", Method: http.MethodOptions, Path: "/shop/v2/orders", Scope: "write"},
		{
			ID:       "POST /shop/v2/orders",
			Method:   http.MethodPost,
			Path:     "/shop/v2/orders",
			Scope:    "orders:write",
			Upstream: "orders",
			TakesKey: true,
		},
		{ID: "DELETE " + items, Method: http.MethodDelete, Path: items, Scope: "write", IsDeprecated: true, TakesKey: true},
		{
			ID: "PATCH " + items, Method: http.MethodPatch, Path: items, Scope: "write", IsDeprecated: true, TakesKey: true, Stability: "beta",
			Successor: "/orders/{id}", DeprecatedAt: time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC), SunsetAt: time.Date(2030, 12, 5, 0, 0, 0, 0, time.UTC),
		},
		{ID: "getQuota", Method: http.MethodGet, Path: "/v1/quota", ByGateway: true, Stability: "beta"},
		{ID: "getUsage", Method: http.MethodGet, Path: "/v1/usage", Scope: "usage:read", ByGateway: true, Stability: "beta"},
	}
	if diff := cmp.Diff(want, got.Operations, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
	must.Equal(t, fmt.Sprint(got.Costs()), "map[listOrders:1000]", "the costs")
	if got.Title != "Orders" || got.Version != "7" || len(got.Hash) != 12 ||
		strings.Join(got.Scopes(), " ") != "read write orders:write" {
		t.Errorf("title %q, version %q, hash %q, scopes %q", got.Title, got.Version, got.Hash, got.Scopes())
	}
	if diff := cmp.Diff(got.Operations, must.Get[*api.API](t)(api.Load("again", got.Source())).Operations); diff != "" {
		t.Errorf("the document that clients get has other operations: %s", diff)
	}
	if codes := fmt.Sprint(got.Document.Components.Schemas["PetgateErrorCode"].Value.Enum); !strings.Contains(
		codes, "upstream_failed",
	) ||
		strings.Contains(codes, "pet_not_found") {
		t.Errorf("the gateway's codes are %s", codes)
	}
	// What clients get says where the operations stand, and that they need the gateway's key.
	shown := must.Get[*openapi3.T](t)(openapi3.NewLoader().LoadFromData(got.Source()))
	if err := shown.Validate(t.Context(), openapi3.DisableExamplesValidation()); err != nil &&
		!strings.Contains(err.Error(), "responses") {
		t.Error(err)
	}
	for _, o := range got.Operations {
		one := shown.Paths.Value(o.Path).GetOperation(o.Method)
		if one == nil || (one.Security != nil) != o.IsPublic || one.Servers != nil ||
			shown.Paths.Value(o.Path).Servers != nil {
			t.Errorf("%s is described as %+v", o.ID, one)
		}
	}
	must.Equal(t, shown.Components.SecuritySchemes["Petgatekey"] == nil, false, "the document lacks the gateway's key")
	if len(shown.Security) != 1 || len(shown.Servers) != 1 || shown.Servers[0].URL != "/" ||
		shown.Paths.Value("/v1/quota").Get.Responses.Value("200") == nil {
		t.Errorf("the document: security %v, servers %+v", shown.Security, shown.Servers)
	}
}

func TestLoadRefuses(t *testing.T) {
	many := strings.Repeat("x", 65)
	ends := []string{
		`version is "": use OpenAPI 3.0 or 3.1`, `version is "4.0.0": use OpenAPI 3.0 or 3.1`, ": use OpenAPI 3.0 or 3.1: convert the document",
		", and a request could mean either: remove one of the two", `"/a" within "/paths": remove one of the two`, ": describe at least one",
		": remove it, and an upstream answers", ": the path has an empty segment, or . or ..", ": describe it as parameters", "without a name or an end",
		": write it percent-encoded", " does not begin with a slash", ": the gateway has a page or an operation of its own at this path: move those with GATEWAY_OWN_PREFIX or --own-prefix",
		": give each operation its own", " is reserved, longer than 200 bytes, or has characters that cannot be printed: choose another",
		": use an instant such as 2030-12-05T00:00:00Z, in quotes", ": use 1 to 64 of a-z, 0-9, colon, dot, hyphen and underscore",
		": use experimental or beta", ": use a path or a URL", ": a public operation needs no key, so remove one of them", ": use true or false", ": remove the operation",
		": a public operation has no quota, so use 0 or remove it", ": use 1 to 1000", " scopes, and at most 64 are possible", " is not in the document",
		": use a path without parameters, query and fragment", " is in another document, which is never read: copy it into this one",
	}
	for what, c := range map[string]struct {
		text string
		want []string // the problems, in any order
	}{
		"nothing":         {"", []string{`version is ""`}},
		"too large":       {strings.Repeat(" ", 32<<20+1), []string{"it has 33554433 bytes, and at most 33554432 are read"}},
		"other text":      {"hello", []string{"the document: "}},
		"broken YAML":     {"openapi: 3.0.0\na: [\n", []string{"line 2"}},
		"Swagger 2":       {"swagger: '2.0'\npaths: {}", []string{"line 1: swagger: use OpenAPI 3.0 or 3.1"}},
		"OpenAPI 4":       {"\nopenapi: 4.0.0\npaths: {}", []string{`line 2: openapi: the version is "4.0.0"`}},
		"no paths":        {"openapi: 3.0.0\ninfo: {title: T, version: '1'}", []string{"no operations"}},
		"no operations":   {describe("  /a: {}"), []string{"line 3: paths: the document has no operations"}},
		"a path twice":    {describe("  /a: {get: {}}\n  /a: {post: {}}"), []string{`line 5: mapping key "/a" already defined at line 4`}},
		"twice in JSON":   {"{\"openapi\": \"3.0.0\",\n\"paths\": {\"/a\": {\"get\": {}},\n\"/a\": {}}}", []string{`line 3: duplicate object member name "/a"`}},
		"the same path":   {describe("  /a/{x}: {get: {}}\n  /a/{y}: {get: {}, post: {}}"), []string{"line 5: GET /a/{y}: it is the same path as /a/{x}, and a request could mean either"}},
		"no method":       {describe("  /a: {additionalOperations: {\"FOO\\r\\nX: y\": {operationId: a}}}"), []string{"FOO\r\nX: y /a: the gateway does not forward FOO"}},
		"for the gateway": {describe("  /a: {get: {x-answered-by: gateway}}"), []string{"line 4: GET /a: x-answered-by is for the gateway's own operations"}},
		"two problems": {
			describe("  a: {get: {}}\n  /b?c=d: {get: {}}\n  /{}: {get: {}}\n  /ü: {get: {}}\n  /a//b: {get: {}}\n  /a/../b: {get: {}}\n  /a/./b: {get: {}}"),
			[]string{"line 4: a: the path does not begin", "line 5: /b?c=d: the path has a query", "line 6: /{}: ", "line 7: /ü: ", "line 8: /a//b: ", "line 9: /a/../b: ", "line 10: /a/./b: "},
		},
		"an unknown $ref": {
			describe("  /a:\n    get:\n      responses:\n        '200': {$ref: '#/components/responses/A'}\n        '201': {$ref: '#/components/responses/B'}\n" +
				"      x-a: {example: {$ref: '#/no'}, examples: {$ref: '#/no'}, default: {$ref: '#/no'}, enum: [{$ref: '#/no'}], const: {$ref: '#/no'}}\n" +
				"  /b: {$ref: '#/paths/~1a'}"),
			[]string{"line 7: $ref #/components/responses/A is not in the document", "line 8: $ref #/components/responses/B"},
		},
		"a remote $ref": {
			describe("  /a:\n    get:\n      responses:\n        '200': {$ref: 'http://127.0.0.1:1/a.yaml'}\n        '201': {$ref: 'file:///etc/passwd'}"),
			[]string{"line 7: $ref http://127.0.0.1:1/a.yaml is in another document", "line 8: $ref file:///etc/passwd is in another document"},
		},
		"own paths": {
			describe("  /v1/quota: {post: {}}\n  /docs: {get: {}}\n  /docs/{page}: {get: {}}\n  /openapi.json: {get: {}}\n  /favicon.ico: {get: {}}\n" +
				"  /docs.md: {get: {}}\n  /llms.txt: {get: {}}\n  /openapi.yaml: {get: {}}\n  /v1/usage: {get: {}}"),
			[]string{
				"line 4: POST /v1/quota: the gateway has", "line 5: GET /docs: ", "line 6: GET /docs/{page}: ", "line 7: GET /openapi.json: ",
				"line 8: GET /favicon.ico: ", "line 9: GET /docs.md: ", "line 10: GET /llms.txt: ", "line 11: GET /openapi.yaml: ", "line 12: GET /v1/usage: ",
			},
		},
		"names": {
			describe("  /a: {get: {operationId: x}, put: {operationId: x}, post: {operationId: none}, patch: {operationId: getQuota}}\n" +
				"  /b: {get: {operationId: " + strings.Repeat("x", 201) + "}, put: {operationId: " + strings.Repeat("x", 200) + "}, head: {operationId: \"\\u200b\"}}"),
			[]string{
				`PUT /a: operationId "x" is also that of GET /a`, `POST /a: operationId "none" is reserved`,
				`PATCH /a: operationId "getQuota" is also that of the gateway's /v1/quota`, "line 5: GET /b: operationId", "line 5: HEAD /b: operationId",
			},
		},
		"extensions": {
			describe("  /a:\n    get: {x-scope: Pets}\n    put: {x-scope: [a]}\n    post: {x-public: 'yes'}\n    patch: {x-public: true, x-scope: a}\n" +
				"    delete: {x-sunset: soon}\n    head: {x-stability: shaky}\n    options: {x-successor: \"/{a\\r\\nX: y}\"}\n    trace: {}\n  /b: {get: {x-scope: " + many + "}, put: {x-upstream: A}, post: {x-successor: '/{a\"b}'}}\n" +
				"  /c:\n    get: {x-cost: 0}\n    put: {x-cost: 1001}\n    post: {x-cost: 1.5}\n    patch: {x-cost: '5'}\n    delete: {x-public: true, x-cost: 1}\n" +
				"    head: {x-public: true, x-cost: many}\n    options: {x-successor: '/a?b=<c>'}"),
			[]string{
				"line 5: GET /a: x-scope is Pets", "line 6: PUT /a: x-scope is [a]", "line 7: POST /a: x-public is yes", "line 8: PATCH /a: it has x-public and x-scope",
				"line 9: DELETE /a: x-sunset is soon", "line 10: HEAD /a: x-stability", "line 11: OPTIONS /a: x-successor", "line 12: TRACE /a: the gateway does not forward TRACE",
				"line 13: GET /b: x-scope", "line 13: PUT /b: x-upstream", "line 13: POST /b: x-successor",
				"line 15: GET /c: x-cost is 0: use 1 to 1000", "line 16: PUT /c: x-cost is 1001", "line 17: POST /c: x-cost is 1.5", "line 18: PATCH /c: x-cost is 5",
				"line 19: DELETE /c: x-cost is 1: a public operation", "line 20: HEAD /c: x-cost is many", "line 21: OPTIONS /c: x-successor",
			},
		},
		"a server with a query": {"openapi: 3.0.0\nservers: [{url: '/{x}'}]\npaths: {/a: {get: {}}}", []string{"line 2: servers: "}},
		"too many scopes": {describe("  /a: {get: {x-scope: s}}\n" + func() (paths string) {
			for i := range 64 {
				paths += fmt.Sprintf("  /a%d: {get: {x-scope: s%d}}\n", i, i)
			}
			return paths
		}()), []string{"the document has 65 scopes"}},
		"many aliases": {"a: &a [" + strings.Repeat("1,", 1000) + "]\nb:\n" + strings.Repeat("- *a\n", 2000), []string{"excessive aliasing"}},
	} {
		began := time.Now()
		got, err := api.Load("t.yaml", []byte(c.text))
		var problems api.Problems
		if !errors.As(err, &problems) || len(problems) != len(c.want) {
			t.Errorf("%s: %+v, problems %q; want %q", what, got, problems, c.want)
			continue
		}
		for _, p := range problems {
			if !strings.HasPrefix(p, "the document: ") &&
				!slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(p, end) }) {
				t.Errorf("%s: the end of %q is none of those", what, p)
			}
		}
		for _, want := range c.want {
			if !strings.Contains(strings.Join(problems, "\n"), want) {
				t.Errorf("%s: no problem has %q: %q", what, want, problems)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: it took %v", what, took)
		}
	}
}

// The gateway's own paths can be moved out of a document's way, also of the pets'.
func TestOwnPrefix(t *testing.T) {
	for name, text := range map[string]string{"pets": string(api.Pets().Source()), "another": describe("  /v1/quota: {get: {}}")} {
		a := must.Get[*api.API](t)(api.LoadWith(name, []byte(text), "/gateway"))
		var own []string
		for _, o := range a.Operations {
			if o.ByGateway {
				own = append(own, o.Path)
			}
		}
		if strings.Join(own, " ") != "/gateway/quota /gateway/usage" ||
			!strings.Contains(string(a.Source()), "\n    /gateway/quota:\n") {
			t.Errorf("%s: the own operations stand at %s", name, own)
		}
	}
	if _, err := api.LoadWith("t", []byte(describe("  /gateway/quota: {get: {}}")), "/gateway"); err == nil ||
		!strings.Contains(err.Error(), "--own-prefix") {
		t.Errorf("an operation at a moved path: %v", err)
	}
	for prefix, isGood := range map[string]bool{"/a": true, "/a/b": true, "/a/": false, "a": false, "/{a}": false, "/%41": false, "/a?b": false} {
		must.Equal(t, api.CheckPrefix(prefix) == nil, isGood, "the prefix %s is good", prefix)
	}
}

// Each document of the corpus can be served.
func TestCorpus(t *testing.T) {
	names, err := filepath.Glob("testdata/*")
	if err != nil || len(names) < 10 {
		t.Fatalf("the corpus has %d documents, %v", len(names), err)
	}
	for _, name := range names {
		a, err := api.Load(name, must.Get[[]byte](t)(os.ReadFile(name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := openapi3.NewLoader().LoadFromData(a.Source())
		if err != nil {
			t.Errorf("%s: as served: %v", name, err)
			continue
		}
		for _, o := range a.Operations {
			if again.Paths.Value(o.Path).GetOperation(o.Method) == nil {
				t.Errorf("%s: as served, it lacks %s", name, o.ID)
			}
		}
	}
}

// A document with 1,000 operations is read in less than a second of processor time (the limit here
// is five times that), and takes less than 30 MB.
func TestThousandOperations(t *testing.T) {
	var b strings.Builder
	b.WriteString("openapi: 3.0.3\ninfo: {title: Large, version: '1'}\npaths:\n")
	for i := range 250 {
		fmt.Fprintf(&b,
			"  /group%d/{id}/things:\n    parameters: [{name: id, in: path, required: true, schema: {type: string}}]\n",
			i)
		for _, method := range []string{"get", "put", "post", "delete"} {
			fmt.Fprintf(
				&b,
				"    %s:\n      operationId: %s%d\n      x-scope: s%d\n      tags: [group%d]\n      summary: A summary of some words\n"+
					"      responses: {'200': {description: OK, content: {application/json: {schema: {type: object, properties: {a: {type: string}, b: {type: array, items: {type: integer}}}}}}}}\n",
				method,
				method,
				i,
				i%64,
				i,
			)
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	worked := func() time.Duration {
		var u syscall.Rusage
		must.Do(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano())
	}
	before, began := heap(), worked()
	a, err := api.Load("large.yaml", []byte(b.String()))
	took := worked() - began
	if err != nil || len(a.Operations) != 1002 {
		t.Fatalf("%d operations, %v", len(a.Operations), err)
	}
	grown := (heap() - before) >> 20
	t.Logf("1,000 operations are read in %v and take %d MB", took.Round(time.Millisecond), grown)
	if took > 5*time.Second || grown > 30 {
		t.Errorf("it took %v and %d MB", took, grown)
	}
	runtime.KeepAlive(a)
}
