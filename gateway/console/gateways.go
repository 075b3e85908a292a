package console

import (
	"fmt"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// cureOf says what the state of a gateway means and what ends it, if operators should know.
func cureOf(g keystore.Gateway, state string) string {
	forget := fmt.Sprintf("If its process has ended and will not come back, run: keyadmin gateway forget %s", g.ID)
	switch state {
	case keystore.GatewaySilent:
		text := "not seen for " + operate.Age(g) + ": it has stopped, hangs, or cannot reach the database. It may still serve what it has in " +
			"memory, so changes wait for it"
		if g.MaxAge > 0 {
			return text + fmt.Sprintf(", at most %s longer. ", operate.Span(g.FenceAfter()-time.Duration(g.Age)*time.Millisecond)) + forget
		}
		return text + ". " + forget
	case keystore.GatewayFenced:
		return "not seen for " + operate.Age(g) + ", longer than its --directory-max-age: if it runs, it refuses every call. Another gateway " +
			"removes it from the list"
	case keystore.GatewayReplaced:
		return "another process has registered with this ID, and this one has not signed off: changes wait for it until it is fenced or " +
			"forgotten. " + forget
	}
	return ""
}
