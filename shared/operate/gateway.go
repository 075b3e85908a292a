package operate

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"petgate/shared/keystore"
)

// GatewayView is a gateway as JSON; scripts rely on its fields.
type GatewayView struct {
	ID           string `json:"id"`
	AdminAddress string `json:"adminAddress"`
	State        string `json:"state"`
	Applied      int64  `json:"applied"` // the last event it has applied
	Lag          int64  `json:"lag"`     // events it has yet to apply
	RegisteredAt string `json:"registeredAt"`
	SeenAt       string `json:"seenAt"`
	AgeMillis    int64  `json:"ageMillis"` // since seenAt, by the database's clock
	Generation   int64  `json:"generation"`

	Document keystore.Document `json:"document"`
}

// viewGateway returns the view of a gateway. last is the last event, read before the gateway.
func viewGateway(g keystore.Gateway, last keystore.Change) GatewayView {
	return GatewayView{
		ID:           g.ID,
		AdminAddress: g.AdminAddress,
		State:        g.State(last),
		Applied:      int64(g.Applied),
		Lag:          max(int64(last-g.Applied), 0),
		RegisteredAt: g.RegisteredAt.String(),
		SeenAt:       g.SeenAt.String(),
		AgeMillis:    g.Age,
		Generation:   g.Generation,
		Document:     g.Document,
	}
}

// ViewGateways returns all registered gateways with their views.
func (o Operator) ViewGateways(ctx context.Context) ([]keystore.Gateway, []GatewayView, error) {
	// The last event is read first, so that no gateway seems to lag because of an event in between.
	last, err := o.Store.LastEvent(ctx)
	if err != nil {
		return nil, nil, err
	}
	gateways, err := o.Store.Gateways(ctx)
	if err != nil {
		return nil, nil, err
	}
	return gateways, ViewsOf(gateways, func(g keystore.Gateway) GatewayView { return viewGateway(g, last) }), nil
}

// GatewayName is a gateway's ID and host.
func GatewayName(g keystore.Gateway) string {
	host, _, err := net.SplitHostPort(g.AdminAddress)
	if err != nil {
		host = g.AdminAddress
	}
	if host == "" {
		return Printable(g.ID)
	}
	return Printable(fmt.Sprintf("%s (%s)", g.ID, host))
}

// Age is how long ago a gateway was seen.
func Age(g keystore.Gateway) string { return Span(time.Duration(max(g.Age, 0)) * time.Millisecond) }

// LostView is a lost refusal as JSON; scripts rely on its fields.
type LostView struct {
	Kind       string `json:"kind"`
	Tenant     string `json:"tenantId"`
	Key        string `json:"keyId,omitempty"`
	At         string `json:"at,omitempty"`
	ReportedBy string `json:"reportedBy"`
	ReportedAt string `json:"reportedAt"`
}

// ViewLost returns the view of a lost refusal.
func ViewLost(l keystore.LostRefusal) LostView {
	v := LostView{Kind: l.Kind, Tenant: l.Tenant.String(), ReportedBy: l.ReportedBy, ReportedAt: l.ReportedAt.String()}
	if !l.Key.IsZero() {
		v.Key, v.At = l.Key.String(), l.At.String()
	}
	return v
}

// NoGateway is the error for an ID that no registered gateway has.
func NoGateway(id string) error {
	return notFound(fmt.Errorf("%w: no gateway %q is registered", keystore.ErrNotFound, id), "gateway", id)
}

// ForgetGateway is the argument of gateway forget.
type ForgetGateway struct {
	Gateway string `arg:"" name:"id" json:"gateway" required:"" help:"The gateway's ID, as gateway list shows it."`
}

// Prepare prepares the end of the waiting for the gateway.
func (a ForgetGateway) Prepare(ctx context.Context, o Operator) (Operation, error) {
	gateways, views, err := o.ViewGateways(ctx)
	if err != nil {
		return Operation{}, err
	}
	// If several have this ID, the first is a replaced one, which is the one that is forgotten.
	i := slices.IndexFunc(gateways, func(g keystore.Gateway) bool { return g.ID == a.Gateway })
	if i < 0 {
		return Operation{}, NoGateway(a.Gateway)
	}
	name := GatewayName(gateways[i])
	return Operation{
		Question: fmt.Sprintf(
			"Forget gateway %s? It is %s, was last seen %s ago, and has yet to apply %s. If it still runs, it "+
				"may accept revoked keys.",
			name,
			views[i].State,
			Age(gateways[i]),
			Plural(views[i].Lag, "change"),
		),
		Laggard: "may still wait for this gateway",
		Change: func(ctx context.Context) (Outcome, error) {
			change, err := o.Store.ForgetGateway(ctx, a.Gateway)
			return Outcome{Change: change, View: views[i], Done: "Forgot gateway " + name + "."}, err
		},
	}, nil
}

// DropLost is the argument of gateway drop.
type DropLost struct {
	ID string `arg:"" json:"id" required:"" help:"The key's or the tenant's ID, as gateway lost shows it."`
}

// Prepare prepares the end of the lost refusals of a key or of a tenant's lost suspension.
func (a DropLost) Prepare(ctx context.Context, o Operator) (Operation, error) {
	all, err := o.Store.LostRefusals(ctx)
	if err != nil {
		return Operation{}, err
	}
	known, lost := "", keystore.LostRefusal{}
	for _, l := range all {
		if v := ViewLost(l); a.ID == cmp.Or(v.Key, v.Tenant) {
			known += fmt.Sprintf(" It was %s%s, as gateway %s reported at %s.", v.Kind,
				Either(v.At == "", "", " at "+v.At), Printable(v.ReportedBy), v.ReportedAt)
			lost = l
		}
	}
	if known == "" {
		return Operation{}, notFound(fmt.Errorf("%w: no refusal of %s was lost", keystore.ErrNotFound, a.ID),
			"lost refusal", a.ID)
	}
	return Operation{
		Question: fmt.Sprintf("Accept %s again? The database has lost its refusal.%s", a.ID, known),
		Laggard:  "may still refuse it",
		Change: func(ctx context.Context) (Outcome, error) {
			change, err := o.Store.DropLost(ctx, lost.Tenant, lost.Key)
			return Outcome{Change: change, View: ViewLost(lost), Done: "Dropped the lost refusal of " + a.ID + "."}, err
		},
	}, nil
}
