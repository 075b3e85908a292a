package console

import (
	"fmt"
	"net/http"

	"petgate/shared/operate"
)

// gatewaysPage is the content of the page of all registered gateways.
type gatewaysPage struct {
	Live   overviewLive
	Lost   string // a sentence; may be empty
	States []struct{ State, Means string }
}

func (c *Console) showGateways(w http.ResponseWriter, r *http.Request, v *visit) error {
	lost, err := v.store.LostRefusals(r.Context())
	if err != nil {
		return err
	}
	page := gatewaysPage{Live: c.watch.look(), States: operate.GatewayStates}
	if len(lost) > 0 {
		page.Lost = fmt.Sprintf(
			"Refusals that the database has lost and gateways keep in force: %d. The command keyadmin gateway "+
				"lost lists them.",
			len(lost),
		)
	}
	return c.show(w, v, http.StatusOK, "gateways", "Gateways", page)
}
