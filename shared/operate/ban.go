package operate

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
)

// BanView is a ban as JSON; scripts rely on its fields.
type BanView struct {
	KeyID     string `json:"keyId"`
	Key       string `json:"key"` // its name
	TenantID  string `json:"tenantId"`
	Tenant    string `json:"tenant"` // its name
	ImposedAt string `json:"imposedAt"`
	Until     string `json:"until"`
	Automatic bool   `json:"automatic"` // a gateway imposed it, because the key did not wait
	Reason    string `json:"reason"`    // for operators
	Notice    string `json:"notice"`    // for the tenant
	By        string `json:"by"`        // the ID of a gateway, or an operator
}

// ViewBan returns the view of a ban, given the names of its tenant and its key.
func ViewBan(b keystore.Ban, tenant, key string) BanView {
	return BanView{
		KeyID:     b.Key.String(),
		Key:       key,
		TenantID:  b.Tenant.String(),
		Tenant:    tenant,
		ImposedAt: b.ImposedAt.String(),
		Until:     b.Until.String(),
		Automatic: b.Automatic, Reason: b.Reason, Notice: b.Notice, By: b.By,
	}
}

// Ban returns the current ban of a key. The zero value means that the key is not banned.
func (o Operator) Ban(ctx context.Context, key id.Key) (keystore.Ban, error) {
	bans, err := lists.Of(o.Store).BansOf(ctx, []id.Key{key})
	return bans[key], err
}

// AddBan are the arguments of ban add.
type AddBan struct {
	KeyRef
	For    Period `json:"for" required:"" placeholder:"AGE" help:"How long: 1h, 7d."`
	Reason Name   `json:"reason" required:"" placeholder:"TEXT" help:"Why, for the audit log. The tenant does not see it."`
	Tell   Notice `json:"tell" title:"Text for the tenant" placeholder:"TEXT" help:"What to tell the tenant in the refusals, such as how to get the ban lifted."`
}

// Prepare prepares a ban that begins now. The reason is for operators, the notice for the tenant.
func (a AddBan) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, k, err := o.Key(ctx, a.Key.Key)
	until, named := o.Now().Add(time.Duration(a.For)), Describe(k)+" of tenant "+t.Name
	return Operation{
		Question: fmt.Sprintf("Ban key %s until %s?", named, until),
		Laggard:  "may still accept this key",
		Change: func(ctx context.Context) (Outcome, error) {
			b, change, err := o.Store.AddBan(ctx,
				keystore.Ban{Key: k.ID, Until: until, Reason: string(a.Reason), Notice: string(a.Tell)})
			return Outcome{Change: change, View: ViewBan(b, t.Name, k.Name), Done: Either(b.Until == until,
				fmt.Sprintf("Banned key %s until %s.", named, until),
				fmt.Sprintf("Key %s is already banned for longer, by %s until %s.", named, b.By, b.Until))}, err
		},
	}, err
}

// LiftBan is the argument of ban lift.
type LiftBan struct{ KeyRef }

// Prepare prepares the end of the ban.
func (a LiftBan) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, k, err := o.Key(ctx, a.Key.Key)
	if err != nil {
		return Operation{}, err
	}
	ban, err := o.Ban(ctx, k.ID)
	return Operation{
		Laggard: "may still refuse this key",
		Change: func(ctx context.Context) (Outcome, error) {
			change, err := o.Store.LiftBan(ctx, k.ID)
			named := Describe(k) + " of tenant " + t.Name
			return Outcome{Change: change, View: ViewKey(k, t, 0, o.Now()), Done: Either(ban.Until != 0,
				"Lifted the ban of key "+named+".", "Key "+named+" is not banned.")}, err
		},
	}, err
}
