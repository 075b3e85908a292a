package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"petgate/shared/api"
	"petgate/shared/testkit/golden"
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
    get:
      {operationId: listOrders, x-unknown: {a: [1]}, x-cost: 1000, servers: [{url: /else}], security: [{other: []}]}
    post:
      x-scope: orders:write
      x-upstream: orders
      parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
    head: {operationId: countOrders, x-cost: 1}
    options: {operationId: askOrders}
  /orders/{id}/items/{name}.json:
    parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}]
    delete: {deprecated: true}
    patch:
      x-sunset: '2030-12-05T00:00:00Z'
      x-deprecated-at: '2026-01-01T00:00:00+01:00'
      x-successor: /orders/{id}
      x-stability: beta
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
			ID: "POST /shop/v2/orders", Method: http.MethodPost, Path: "/shop/v2/orders", Scope: "orders:write",
			Upstream: "orders", TakesKey: true,
		},
		{ID: "DELETE " + items, Method: http.MethodDelete, Path: items, Scope: "write", IsDeprecated: true, TakesKey: true},
		{
			ID: "PATCH " + items, Method: http.MethodPatch, Path: items, Scope: "write", TakesKey: true,
			Stability: "beta", IsDeprecated: true, Successor: "/orders/{id}",
			DeprecatedAt: time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC),
			SunsetAt:     time.Date(2030, 12, 5, 0, 0, 0, 0, time.UTC),
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
	codes := fmt.Sprint(got.Document.Components.Schemas["PetgateErrorCode"].Value.Enum)
	if !strings.Contains(codes, "upstream_failed") || strings.Contains(codes, "pet_not_found") {
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

// refuse returns the problems of a document, a line each.
func refuse(t *testing.T, document string) (text string) {
	t.Helper()
	_, err := api.Load("t.yaml", []byte(document))
	problems, ok := errors.AsType[api.Problems](err)
	must.Equal(t, ok, true, "whether the error has problems: %v", err)
	for _, problem := range problems {
		text += strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(problem) + "\n"
	}
	return text
}

// The file has documents, and says of each why it is refused.
func TestLoadRefuses(t *testing.T) {
	const problems = "-- problems\n"
	var got strings.Builder
	file := string(must.Get[[]byte](t)(os.ReadFile("testdata/refused.golden")))
	for _, section := range strings.SplitAfter(file, "\n\n") {
		document, _, isFound := strings.Cut(section, problems)
		if _, text, ok := strings.Cut(document, "\n"); ok && isFound {
			fmt.Fprintf(&got, "%s%s%s\n", document, problems, refuse(t, text))
		}
	}
	golden.Check(t, "refused", got.String())
}

// Documents that are too large for the file are refused as well, and soon.
func TestLoadRefusesLargeDocuments(t *testing.T) {
	var scopes strings.Builder
	for i := range 65 {
		fmt.Fprintf(&scopes, "  /a%d: {get: {x-scope: s%d}}\n", i, i)
	}
	aliases := "a: &a [" + strings.Repeat("1,", 1000) + "]\nb:\n" + strings.Repeat("- *a\n", 2000)
	for document, want := range map[string]string{
		strings.Repeat(" ", 32<<20+1): "the document: it has 33554433 bytes, and at most 33554432 are read\n",
		describe(scopes.String()):     "x-scope: the document has 65 scopes, and at most 64 are possible\n",
		aliases:                       "the document: yaml: document contains excessive aliasing\n",
	} {
		began := time.Now()
		must.Equal(t, refuse(t, document), want, "the problems of %.100q", document)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%.100q: it took %v", document, took)
		}
	}
}

// The gateway's own paths can be moved out of a document's way, also of the pets'.
func TestOwnPrefix(t *testing.T) {
	for name, text := range map[string]string{
		"pets": string(api.Pets().Source()), "another": describe("  /v1/quota: {get: {}}"),
	} {
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
	for prefix, isGood := range map[string]bool{
		"/a": true, "/a/b": true, "/a/": false, "a": false, "/{a}": false, "/%41": false, "/a?b": false,
	} {
		must.Equal(t, api.CheckPrefix(prefix) == nil, isGood, "the prefix %s is good", prefix)
	}
}

// Each document of the corpus can be served.
func TestCorpus(t *testing.T) {
	names, err := filepath.Glob("testdata/*.[jy]*")
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
	const operation = `    %s:
      operationId: %[1]s%[2]d
      x-scope: s%[3]d
      tags: [group%[2]d]
      summary: A summary of some words
      responses:
        '200':
          description: OK
          content:
            application/json:
              schema: {type: object, properties: {a: {type: string}, b: {type: array, items: {type: integer}}}}
`
	var b strings.Builder
	for i := range 250 {
		fmt.Fprintf(&b, "  /group%d/{id}/things:\n", i)
		b.WriteString("    parameters: [{name: id, in: path, required: true, schema: {type: string}}]\n")
		for _, method := range []string{"get", "put", "post", "delete"} {
			fmt.Fprintf(&b, operation, method, i, i%64)
		}
	}
	document := describe(b.String())
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
	a, err := api.Load("large.yaml", []byte(document))
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
