package main

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type banCommands struct {
	List banList `cmd:"" help:"List the current bans."`
	Add  banAdd  `cmd:"" help:"Ban a key for a while."`
	Lift banLift `cmd:"" help:"End a ban early."`
}

type banList struct{ limiting }

func (c *banList) Run(ctx context.Context, a *app, store *keystore.Store) error {
	bans := store.Bans(ctx)
	if n := c.rows(a); n > 0 {
		bans = first(&c.limiting, n, asList(store.FindBans(ctx, id.Tenant{}, 0, id.Key{}, n+1)))
	}
	t := table{
		head: []string{"KEY", "TENANT", "NAME", "UNTIL", "BY", "REASON"}, spare: []string{"NAME", "BY"},
		none: "No key is banned.",
	}
	return printList(a, &c.limiting, operate.ViewBans(bans), t, func(v operate.BanView) []string {
		return []string{v.KeyID, v.Tenant, v.Key, v.Until, v.By, operate.OrDash(v.Reason)}
	})
}

// banned is the ID of a key. Bans are of keys only.
type banned struct{ keyArgument }

func (b *banned) UnmarshalText(text []byte) error {
	err := b.keyArgument.UnmarshalText(text)
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

// ProvideKey finds the key for Run.
func (c *banAdd) ProvideKey(ctx context.Context, a *app, store *keystore.Store) (ownedKey, error) {
	return ofKey{c.Key.keyArgument}.ProvideKey(ctx, a, store)
}

func (c *banAdd) Run(ctx context.Context, a *app, k ownedKey) error {
	return a.carryOut(ctx, operation{
		Operation: a.operator.AddBan(k.Owner, k.Key, time.Duration(c.For), string(c.Reason), string(c.Tell)), yes: c.Yes, wait: c.Wait,
	})
}

type banLift struct {
	ofKey
	waiting
}

func (c *banLift) Run(ctx context.Context, a *app, k ownedKey) error {
	op, err := a.operator.LiftBan(ctx, k.Owner, k.Key)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{Operation: op, wait: c.Wait})
}
