package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"petgate/gateway/app"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// ordersOf returns a document with one operation at a path.
func ordersOf(version, path string) string {
	return "openapi: 3.1.0\ninfo: {title: Orders, version: '" + version + "'}\npaths:\n  " + path + ": {get: {operationId: listOrders, x-scope: 'orders:read'}}\n"
}

// SIGHUP replaces the operations, the pages and the registration by those of the file as it is now.
// A file that cannot be served changes nothing, and /readyz says why until one can.
func TestDocumentIsReadAgain(t *testing.T) {
	testkit.HearHangups(t)
	file := filepath.Join(t.TempDir(), "orders.yaml")
	write := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(ordersOf("1", "/orders"))
	url := testkit.SQLite(t)
	db := testkit.Open(t, url, schema.Migrations)
	store := keystore.New(db, nil, nil, "test")
	tenant := must.First[keystore.Tenant](t)(
		store.CreateTenant(t.Context(), keystore.TenantSpec{Name: "acme", Plan: "business"}),
	)
	_, token, _, err := store.CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant.ID, Scopes: "orders:read"})
	must.Do(t, err)
	r := start(t, url, func(cfg *app.Config) {
		if cfg.API, cfg.Docs, cfg.DocsTitle = file, true, "Paws & Claws"; len(cfg.BadSettings()) > 0 {
			t.Errorf("the settings are bad: %+v", cfg.BadSettings())
		}
	})
	r.awaitReady(t)
	expect(t, r.url+"/docs", "", http.StatusOK, "<title>Paws &amp; Claws: API reference</title>")
	described := func(version string) {
		t.Helper()
		testkit.Eventually(t, readyWithin, "the registration has version "+version, func() bool {
			gateways, err := store.Gateways(t.Context())
			return err == nil && len(gateways) == 1 &&
				strings.HasPrefix(gateways[0].Document.String(), "Orders "+version+" (") &&
				strings.Join(gateways[0].Document.Scopes, " ") == "orders:read"
		})
	}
	reload := func(text, says string) {
		t.Helper()
		write(text)
		before := strings.Count(r.log.String(), says)
		must.Do(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		testkit.Eventually(t, readyWithin, says, func() bool { return strings.Count(r.log.String(), says) > before })
	}
	want := func(old, now int) {
		t.Helper()
		expect(t, r.url+"/orders", token, old)
		expect(t, r.url+"/v2/orders", token, now)
	}
	described("1")
	want(200, 404)
	reload(ordersOf("2", "/docs"), "keeps the one before")
	want(200, 404)
	expect(t, r.admin+"/readyz", "", http.StatusOK, "line 4: GET /docs", `"document"`)
	costing := func(units int) string {
		return strings.Replace(ordersOf("3", "/v2/orders"), "get: {", fmt.Sprintf("get: {x-cost: %d, ", units), 1)
	}
	reload(costing(61), "keeps the one before")
	expect(t, r.admin+"/readyz", "", http.StatusOK,
		"plan free: a request of operation listOrders costs 61, so a minute limit of 60")
	reload(costing(5), "the document was read again")
	want(404, 200)
	described("3")
	lower := operate.UpdatePlan{Plan: "free", LimitChanges: operate.LimitChanges{Minute: 4}}
	if _, err := lower.Prepare(t.Context(), operate.Operator{Store: store}); err == nil ||
		!strings.Contains(err.Error(), "listOrders costs 5, so a minute limit of 4") {
		t.Errorf("a plan below a cost: %v", err)
	}
	expect(t, r.url+"/openapi.yaml", "", http.StatusOK, "/v2/orders:", "/v1/quota:")
	if _, body := get(t, r.admin+"/readyz", ""); strings.Contains(body, `"document"`) {
		t.Errorf("/readyz still has a problem: %s", body)
	}
	r.end(t)
}

// --check prints what would be served, or every problem of the document.
func TestCheckPrintsOperations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orders.yaml")
	check := func(text string) (code int, out, problems string) {
		t.Helper()
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		var cfg app.Config
		var stdout, stderr bytes.Buffer
		code, _ = service.Load(
			&cfg,
			"gateway",
			"",
			[]string{
				"--check", "--api", file, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--snapshot=",
			},
			&stdout,
			&stderr,
		)
		return code, stdout.String(), stderr.String()
	}
	code, out, problems := check(ordersOf("1", "/orders") + "  /orders/{a}: {get: {}}\n  /orders/{a}.json: {get: {}}\n")
	out = strings.Join(strings.Fields(out), " ")
	if code != 0 ||
		!strings.Contains(
			out,
			" GET /orders listOrders orders:read - - - GET /orders/{a}.json GET /orders/{a}.json read - - - GET /orders/{a} ",
		) {
		t.Errorf("exit %d: %s%s", code, out, problems)
	}
	code, costing, problems := check(
		ordersOf("1", "/orders") + "  /orders/{a}: {get: {x-cost: 5}}\n  /free: {get: {x-public: true}}\n",
	)
	costing = strings.Join(strings.Fields(costing), " ")
	for _, want := range []string{"DEPRECATED COST GET /free GET /free - - yes - - ", " listOrders orders:read - - - 1 ", " GET /orders/{a} read - - - 5 ", " getQuota - (the gateway) - - - "} {
		if code != 0 || strings.Contains(out, "COST") || !strings.Contains(costing, want) {
			t.Errorf("exit %d, without %q: %s%s", code, want, costing, problems)
		}
	}
	code, out, problems = check(
		ordersOf(
			"1", "/docs",
		) + "  /{a}/b: {get: {}}\n  /a/{b}: {get: {x-sunset: soon}}\n  /c/{d}: {get: {}}\n  /c/{e}: {get: {}}\n",
	)
	for _, want := range []string{"line 4: GET /docs: ", "line 6: GET /a/{b}: x-sunset is soon", "line 8: GET /c/{e}: it is the same path as /c/{d}"} {
		if code != 2 || !strings.Contains(problems, want) {
			t.Errorf("exit %d, without %q: %s%s", code, want, out, problems)
		}
	}
}
