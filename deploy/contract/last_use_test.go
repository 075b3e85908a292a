package contract_test

import (
	"encoding/json"
	"strings"
	"testing"

	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// A call uses its key if it is charged, also if its answer is a refusal. What is refused before that is shown apart.
func TestLastUse(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Gateways: 1, Upstreams: fleet.FixedUpstream(t)})
	f.NewTenant("acme", fleet.Unlimited...)
	suspended := f.NewTenant("suspended", fleet.Unlimited...)
	f.MustKeyadmin("tenant", "suspend", "suspended", "--yes")
	spender := f.NewTenant("spent", "--minute", "1", "--day", "1000")
	f.Gateways[0].Want(t, spender.Token, 200, "")
	revoked, banned, disabled := f.NewKey("acme"), f.NewKey("acme"), f.NewKey("acme")
	f.MustKeyadmin("key", "disable", disabled.ID, "--yes")
	f.MustKeyadmin("key", "revoke", revoked.ID, "--yes")
	f.MustKeyadmin("ban", "add", banned.ID, "--for", "1h", "--reason", "test", "--yes")
	c := f.Gateways[0].Client()
	defer c.Close()
	calls := []struct {
		key          fleet.Key
		target, code string
		isUse        bool
	}{
		{f.NewKey("acme"), "GET /v1/pets", "", true},
		{f.NewKey("acme"), "GET /v1/quota", "", true},
		{f.NewKey("acme"), "GET /v1/nothing", "no_such_route", true},
		{f.NewKey("acme", "--scope", "pets:write"), "GET /v1/pets", "insufficient_scope", true},
		{f.NewKey("acme", "--allow", "192.0.2.0/24"), "GET /v1/pets", "address_not_allowed", false},
		{revoked, "GET /v1/pets", "invalid_api_key", false},
		{disabled, "GET /v1/pets", "invalid_api_key", false},
		{banned, "GET /v1/pets", "key_banned", false},
		{suspended, "GET /v1/pets", "tenant_suspended", false},
		{f.NewKey("spent"), "GET /v1/pets", "minute_quota_exceeded", false},
	}
	for _, call := range calls {
		if a, err := c.Do(fleet.Request(call.target, call.key.Token, "")); err != nil || a.Code() != call.code {
			t.Fatalf("%s: %d %q, want %q: %v", call.target, a.Status, a.Code(), call.code, err)
		}
	}
	for _, call := range calls {
		var used, refused bool
		testkit.Eventually(t, fleet.ReplyWithin, "the call is known", func() bool {
			var k operate.KeyView
			must.Do(t, json.Unmarshal([]byte(f.MustKeyadmin("key", "show", call.key.ID, "-o", "json")), &k))
			used, refused = k.LastUsedAt != "", k.LastRefusedAt != ""
			return used || refused
		})
		if used != call.isUse || refused == call.isUse {
			t.Errorf("after %s, %q: used %t, refused %t", call.target, call.code, used, refused)
		}
	}
	if a := f.Gateways[0].MustAsk(t, disabled.Token); !strings.Contains(a.Body, "the API key is disabled: ask your contact to enable it") {
		t.Error(a.Body)
	}
	f.MustKeyadmin("key", "enable", disabled.ID)
	f.Gateways[0].Want(t, disabled.Token, 200, "")
}
