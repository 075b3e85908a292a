package console

import (
	"fmt"
	"net/http"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// gatewaysPage is the content of the page of all registered gateways.
type gatewaysPage struct {
	Notices []string
	List    list
}

func (c *Console) showGateways(w http.ResponseWriter, r *http.Request, v *visit) error {
	gateways, views, err := v.operator.ViewGateways(r.Context())
	if err != nil {
		return err
	}
	if isData, err := c.sendData(w, r, v, "gateways", views, ""); isData {
		return err
	}
	lost, err := v.store.LostRefusals(r.Context())
	if err != nil {
		return err
	}
	page := gatewaysPage{List: list{
		Caption: "Registered gateways", Columns: columns("ID", "State", "#Lag (events)", "Admin address", "Last seen", "Since (UTC)"),
		None: "No gateway is registered.", Cure: "A gateway that starts with this database registers by itself.",
	}}
	for i, g := range gateways {
		page.List.Rows = append(page.List.Rows, []cell{
			{Text: g.ID},
			status(views[i].State, views[i].State == keystore.GatewayLive),
			{Text: humanize.Comma(views[i].Lag)},
			{Text: operate.OrDash(g.AdminAddress)},
			{Text: operate.Age(g) + " ago"},
			{Text: shortTime(g.RegisteredAt)},
		})
		if cure := cureOf(g, views[i].State); cure != "" {
			page.Notices = append(page.Notices, g.ID+": "+cure)
		}
	}
	if len(lost) > 0 {
		page.Notices = append(page.Notices, fmt.Sprintf("Refusals that the database has lost and gateways keep in force: %d. The command keyadmin gateway lost lists them.", len(lost)))
	}
	page.List = page.List.paged(r, "")
	return c.show(w, v, http.StatusOK, "gateways", "Gateways", page)
}

// cureOf says what the state of a gateway means and what ends it, if operators should know.
func cureOf(g keystore.Gateway, state string) string {
	forget := "If its process has ended and will not come back, run: " + operate.ForgetCommand(g.ID)
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
