//go:build e2e

package e2e_test

import (
	"testing"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// What each saving of shared/socket saves: gateways that differ only in these savings take turns. The system calls of a request
// are judged elsewhere.
func TestSpeedOfSockets(t *testing.T) {
	redis := testkit.StartRedis(t)
	f := fleet.Start(t, fleet.Spec{
		Redis: redis.URL, Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_ACCESS_LOG=false"},
	})
	request := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	var contenders []*contender
	for _, savings := range []string{
		"none", "quiet", "exchange", "deadlines", "exchange,deadlines", "quiet,exchange", "quiet,deadlines", "quiet,exchange,deadlines",
	} {
		contenders = append(contenders, &contender{name: "sockets save " + savings, gateway: f.AddGateway("PETGATE_SOCKETS=" + savings)})
	}
	takeTurns(t, request, contenders)
}
