package operate

import (
	"fmt"
	"time"

	"petgate/shared/keystore"
)

// GatewayStates says what each state of a gateway means. A sentence begins with the gateway.
var GatewayStates = []struct{ State, Means string }{
	{keystore.GatewayLive, "has applied every change"},
	{keystore.GatewayBehind, "is applying the latest changes"},
	{keystore.GatewayStarting, "is loading the database"},
	{keystore.GatewaySilent, "has not been seen for 3 s: " + silentMeans},
	{keystore.GatewayFenced, "has not been seen for " + fencedMeans},
	{keystore.GatewayReplaced, replacedMeans},
}

const (
	silentMeans = "it has stopped, hangs, or cannot reach the database. It may still serve what it has in " +
		"memory, so changes wait for it"
	fencedMeans = "longer than its --directory-max-age: if it runs, it refuses every call. Another gateway " +
		"removes it from the list"
	replacedMeans = "another process has registered with its ID, but this process has not signed off and may " +
		"still serve: changes wait for it until " +
		"it is fenced or forgotten"
)

// GatewayTrouble says what is wrong with a gateway in a state, and what ends it. Empty: nothing is
// wrong that an operator ends.
func GatewayTrouble(g keystore.Gateway, state string) (problem, cure string) {
	const restart = "read its log. If it cannot use the database, mend that, and do not restart it: counts and " +
		"usage may be only in its memory. If it hangs, restart it"
	forget := ". " + forgetCure("its process", g.ID)
	switch state {
	case keystore.GatewaySilent:
		problem = "not seen for " + Age(g) + ": " + silentMeans
		if g.MaxAge > 0 {
			problem += fmt.Sprintf(", at most %s longer", Span(g.FenceAfter()-time.Duration(g.Age)*time.Millisecond))
		}
		return problem, restart + forget
	case keystore.GatewayFenced:
		return "not seen for " + Age(g) + ", " + fencedMeans, restart
	case keystore.GatewayReplaced:
		return replacedMeans, "give each gateway its own GATEWAY_ID" + forget
	}
	return "", ""
}

// forgetCure is how a gateway that will not come back leaves the list.
func forgetCure(what, gateway string) string {
	return "If " + what + " has ended and will not come back: " + ForgetCommand(gateway)
}
