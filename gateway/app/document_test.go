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

// ordersOf returns a document with one operation at a path, and more of its lines.
func ordersOf(version, path string, more ...string) string {
	head := "openapi: 3.1.0\ninfo: {title: Orders, version: '" + version + "'}\npaths:\n  "
	first := path + ": {get: {operationId: listOrders, x-scope: 'orders:read'}}"
	return head + strings.Join(append([]string{first}, more...), "\n  ") + "\n"
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
	store := storeOf(testkit.Open(t, url, schema.Migrations))
	acme := keystore.TenantSpec{Name: "acme", Plan: "business"}
	tenant := must.First[keystore.Tenant](t)(store.CreateTenant(t.Context(), acme))
	_, token, _, err := store.CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant.ID, Scopes: "orders:read"})
	must.Do(t, err)
	r := ready(t, url, func(cfg *app.Config) {
		cfg.API, cfg.Docs, cfg.DocsTitle = file, true, "Paws & Claws"
		if bad := cfg.BadSettings(); len(bad) > 0 {
			t.Errorf("the settings are bad: %+v", bad)
		}
	})
	expect(t, r.url+"/docs", "", http.StatusOK, "<title>Paws &amp; Claws: API reference</title>")
	described := func(version string) {
		t.Helper()
		testkit.Eventually(t, readyWithin, "the registration has version "+version, func() bool {
			gateways, err := store.Gateways(t.Context())
			if err != nil || len(gateways) != 1 || strings.Join(gateways[0].Document.Scopes, " ") != "orders:read" {
				return false
			}
			return strings.HasPrefix(gateways[0].Document.String(), "Orders "+version+" (")
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
	_, err = lower.Prepare(t.Context(), operate.Operator{Store: store})
	if err == nil || !strings.Contains(err.Error(), "listOrders costs 5, so a minute limit of 4") {
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
	f := func(wantCode int, document string, says ...string) (all string) {
		t.Helper()
		must.Do(t, os.WriteFile(file, []byte(document), 0o600))
		arguments := []string{
			"--check", "--api", file, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--snapshot=",
		}
		var cfg app.Config
		var out bytes.Buffer
		code, _ := service.Load(&cfg, "gateway", "", arguments, &out, &out)
		all = strings.Join(strings.Fields(out.String()), " ")
		if code != wantCode || !hasAll(all, says) {
			t.Errorf("exit %d, want %d and %q: %s", code, wantCode, says, &out)
		}
		return all
	}
	all := f(0, ordersOf("1", "/orders", "/orders/{a}: {get: {}}", "/orders/{a}.json: {get: {}}"),
		" GET /orders listOrders orders:read - - - GET /orders/{a}.json GET /orders/{a}.json read - - - "+
			"GET /orders/{a} ")
	if strings.Contains(all, "COST") {
		t.Errorf("a document without costs: %s", all)
	}
	f(0, ordersOf("1", "/orders", "/orders/{a}: {get: {x-cost: 5}}", "/free: {get: {x-public: true}}"),
		"DEPRECATED COST GET /free GET /free - - yes - - ", " listOrders orders:read - - - 1 ",
		" GET /orders/{a} read - - - 5 ", " getQuota - (the gateway) - - - ")
	f(2, ordersOf("1", "/docs", "/{a}/b: {get: {}}", "/a/{b}: {get: {x-sunset: soon}}", "/c/{d}: {get: {}}",
		"/c/{e}: {get: {}}"),
		"line 4: GET /docs: ", "line 6: GET /a/{b}: x-sunset is soon", "line 8: GET /c/{e}: it is the same path as /c/{d}")
}
