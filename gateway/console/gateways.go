package console

import (
	"fmt"
	"net/http"

	"github.com/dustin/go-humanize"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// gatewaysPage is the content of the page of all registered gateways.
type gatewaysPage struct {
	Notices []string
	List    list
	States  []struct{ State, Means string }
}

func (c *Console) showGateways(w http.ResponseWriter, r *http.Request, v *visit) error {
	gateways, views, err := v.operator.ViewGateways(r.Context())
	if err != nil {
		return err
	}
	lost, err := v.store.LostRefusals(r.Context())
	if err != nil {
		return err
	}
	page := gatewaysPage{States: operate.GatewayStates, List: list{
		Caption: "Registered gateways", Columns: []column{"ID", "State", "#Lag (events)", "Admin address", "Last seen", "Since", "~Document"},
		None: "No gateway is registered.", Cure: "A gateway that starts with this database registers by itself.",
	}}
	for i, g := range gateways {
		page.List.Rows = append(page.List.Rows, []cell{
			{Text: g.ID},
			status(views[i].State, views[i].State == keystore.GatewayLive),
			{Text: humanize.Comma(views[i].Lag)},
			{Text: operate.OrDash(g.AdminAddress)},
			{Text: operate.Age(g) + " ago"},
			v.when(g.RegisteredAt, "-"),
			{Text: operate.OrDash(g.Document.String())},
		})
		if cure := cureOf(g, views[i].State); cure != "" {
			page.Notices = append(page.Notices, g.ID+": "+cure)
		}
	}
	if len(lost) > 0 {
		page.Notices = append(page.Notices, fmt.Sprintf("Refusals that the database has lost and gateways keep in force: %d. The command keyadmin gateway lost lists them.", len(lost)))
	}
	return c.show(w, v, http.StatusOK, "gateways", "Gateways", page)
}

// cureOf says what is wrong with a gateway and what ends it; empty: nothing is wrong.
func cureOf(g keystore.Gateway, state string) string {
	problem, cure := operate.GatewayTrouble(g, state)
	if problem == "" {
		return ""
	}
	return problem + ". The cure: " + cure
}
