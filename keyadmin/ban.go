package main

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
)

type banCommands struct {
	List banList `cmd:"" help:"List the current bans."`
	Add  banAdd  `cmd:"" help:"Ban a key for a while."`
	Lift banLift `cmd:"" help:"End a ban early."`
}

// banView is a ban as JSON; scripts rely on its fields.
type banView struct {
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

func viewBan(b keystore.Ban, tenant, key string) banView {
	return banView{
		KeyID: b.Key.String(), Key: key, TenantID: b.Tenant.String(), Tenant: tenant, ImposedAt: b.ImposedAt.String(), Until: b.Until.String(),
		Automatic: b.Automatic, Reason: b.Reason, Notice: b.Notice, By: b.By,
	}
}

// bans returns the current bans.
func (a *app) bans(ctx context.Context) (map[id.Key]keystore.Ban, error) {
	all, err := a.store.Bans(ctx)
	running := make(map[id.Key]keystore.Ban, len(all))
	for _, b := range all {
		if b.Until > a.now() {
			running[b.Key] = b
		}
	}
	return running, err
}

// ban returns the current ban of a key. The zero value means that the key is not banned.
func (a *app) ban(ctx context.Context, key id.Key) (keystore.Ban, error) {
	bans, err := a.bans(ctx)
	return bans[key], err
}

type banList struct{}

func (banList) Help() string {
	return `Examples:

    keyadmin ban list`
}

func (banList) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	bans, err := a.store.Bans(ctx)
	if err != nil {
		return err
	}
	views := make([]banView, 0, len(bans))
	t := table{
		head: []string{"KEY", "TENANT", "NAME", "UNTIL", "BY", "REASON"}, spare: []string{"NAME", "BY"},
		none: "No key is banned.",
	}
	for _, b := range bans {
		k, err := a.store.Key(ctx, b.Key)
		if err != nil {
			return err
		}
		owner, err := a.store.Tenant(ctx, b.Tenant.String())
		if err != nil {
			return err
		}
		v := viewBan(b, owner.Name, k.Name)
		views = append(views, v)
		t.rows = append(t.rows, []string{v.KeyID, v.Tenant, v.Key, v.Until, v.By, orDash(v.Reason)})
	}
	return a.print(views, t)
}

// banned is the ID of a key. Bans are of keys only.
type banned keyArgument

func (b *banned) UnmarshalText(text []byte) error {
	err := (*keyArgument)(b).UnmarshalText(text)
	if err != nil {
		err = fmt.Errorf("%w; `keyadmin tenant suspend TENANT` refuses all keys of a tenant", err)
	}
	return err
}

type banAdd struct {
	Key    banned `arg:"" help:"The key's ID, key_…"`
	For    period `required:"" placeholder:"AGE" help:"How long: 1h, 7d."`
	Reason name   `required:"" placeholder:"TEXT" help:"Why, for the audit log. The tenant does not see it."`
	Tell   notice `placeholder:"TEXT" help:"What to tell the tenant in the refusals, such as how to get the ban lifted."`
	asking
	waiting
}

func (banAdd) Help() string {
	return `Requests with the key are refused with 429 key_banned until the ban ends. If the key is already banned, the longer ban
holds. To change the text for the tenant, lift the ban and add it again.

Examples:

    keyadmin ban add key_0123456789abcdef --for 1h --reason "scraping"

    # With a text for the tenant
    keyadmin ban add key_0123456789abcdef --for 7d --reason "invoice 77" --tell "Invoice 77 is unpaid. Please write to billing@example.com."`
}

func (c *banAdd) Run(ctx context.Context, a *app) error {
	until := a.now().Add(time.Duration(c.For))
	t, k, err := a.openKey(ctx, id.Key(c.Key))
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		question: fmt.Sprintf("Ban key %s of tenant %s until %s?", describe(k), t.Name, until),
		yes:      c.Yes, wait: c.Wait, laggard: "may still accept this key",
		change: func() (outcome, error) {
			b, change, err := a.store.AddBan(ctx, keystore.Ban{Key: k.ID, Until: until, Reason: string(c.Reason), Notice: string(c.Tell)})
			return outcome{change: change, view: viewBan(b, t.Name, k.Name), done: either(b.Until == until,
				fmt.Sprintf("Banned key %s of tenant %s until %s.", describe(k), t.Name, until),
				fmt.Sprintf("Key %s of tenant %s is already banned for longer, by %s until %s.",
					describe(k), t.Name, b.By, b.Until))}, err
		},
	})
}

type banLift struct {
	Key keyArgument `arg:"" help:"The key's ID, key_…"`
	Yes bool        `short:"y" hidden:"" help:"Accepted like that of ban add. Lifting a ban never asks."`
	waiting
}

func (banLift) Help() string {
	return `Examples:

    keyadmin ban lift key_0123456789abcdef`
}

func (c *banLift) Run(ctx context.Context, a *app) error {
	t, k, err := a.openKey(ctx, id.Key(c.Key))
	if err != nil {
		return err
	}
	ban, err := a.ban(ctx, k.ID)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		wait: c.Wait, laggard: "may still refuse this key",
		change: func() (outcome, error) {
			change, err := a.store.LiftBan(ctx, k.ID)
			return outcome{change: change, view: viewKey(k, t, 0, a.now()), done: either(ban.Until != 0,
				"Lifted the ban of key "+describe(k)+" of tenant "+t.Name+".",
				"Key "+describe(k)+" of tenant "+t.Name+" is not banned.")}, err
		},
	})
}
