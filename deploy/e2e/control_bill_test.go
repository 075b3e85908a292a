package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// A tenant calls with a live key and a test key, also an operation that costs five units. Its usage and its bill have what the clients saw, in
// requests and units. The bill has no test call.
func TestBillHasNoTestCalls(t *testing.T) {
	t.Parallel()
	document := filepath.Join(t.TempDir(), "api.yaml")
	must.Do(t, os.WriteFile(document, []byte("openapi: 3.1.0\ninfo: {title: Orders, version: '1'}\npaths:\n"+
		"  /orders: {get: {operationId: listOrders, x-cost: 5}}\n  /prices: {get: {operationId: listPrices}}\n"), 0o600))
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis, RedisPrefix: prefix, Upstreams: fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_API=" + document, "GATEWAY_DRAIN_DELAY=0s"},
	})
	gateways := map[string]*fleet.Program{"live": f.AddGateway(), "test": f.AddGateway("GATEWAY_ENVIRONMENT=test")}
	f.MustKeyadmin(append([]string{"tenant", "create", "acme"}, fleet.Unlimited...)...)
	keys := map[string]fleet.Key{"live": f.NewKey("acme"), "test": f.NewKey("acme", "--test")}
	seen := map[string]string{} // requests and units, as CSV
	for environment, times := range map[string]int{"live": 3, "test": 7} {
		gateway, units := gateways[environment], 0
		for range times {
			for _, path := range []string{"/orders", "/prices"} {
				reply := gateway.Client().Must(t, fleet.Request("GET "+path, keys[environment].Token, ""))
				cost, err := strconv.Atoi(reply.Header.Get("X-Request-Cost"))
				if path == "/prices" && reply.Header.Get("X-Request-Cost") == "" {
					cost, err = 1, nil
				}
				if units += cost; reply.Status != 200 || err != nil {
					t.Fatalf("%s %s: %v, %v", environment, path, reply, err)
				}
			}
		}
		seen[environment] = fmt.Sprintf(",%d,%d,%d", 2*times, 2*times, units)
	}
	for environment, flags := range map[string][]string{"live": nil, "test": {"--test"}} {
		gateways[environment].Stop() // it stores its usage
		shown := f.MustKeyadmin(append([]string{"usage", "show", "acme", "--by", "key", "-o", "csv"}, flags...)...)
		if want := keys[environment].ID + ",default," + seen[environment]; !strings.Contains(shown, want) || strings.Count(shown, "\n") != 2 {
			t.Errorf("usage of the %s key:\n%s\nwant %s", environment, shown, want)
		}
	}
	if _, err := openDatabase(t, f).Exec(`UPDATE usage_hours SET hour = hour - 7200000`); err != nil { // until these hours are closed
		t.Fatal(err)
	}
	bill := f.MustKeyadmin("usage", "export", "--format", "csv", "--verify", "-o", "csv")
	if want := "acme,2" + seen["live"]; !strings.Contains(bill, want) || seen["live"] != ",6,6,18" {
		t.Errorf("the bill:\n%s\nwant %s", bill, want)
	}
}
