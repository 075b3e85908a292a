package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type keyCommands struct {
	Create  change[operate.CreateKey] `cmd:"" help:"Issue a key; its token is shown once."`
	Update  asked[operate.UpdateKey]  `cmd:"" help:"Change the name, scopes, allow-list, expiry or limits of a key."`
	List    keyList                   `cmd:"" help:"List keys."`
	Show    keyShow                   `cmd:"" help:"Show one key: status, scopes, last use."`
	Disable asked[operate.DisableKey] `cmd:"" help:"Refuse a key until it is enabled."`
	Enable  change[operate.EnableKey] `cmd:"" help:"Accept a disabled key again."`
	Revoke  asked[operate.RevokeKey]  `cmd:"" help:"End a key at once and permanently."`
	Rotate  asked[operate.RotateKey]  `cmd:"" help:"Replace a key; the old one works until its grace period ends."`
	Whoami  keyWhoami                 `cmd:"" help:"Show the key of a token read from standard input."`
}

func keySheet(v operate.KeyView) table {
	return table{rows: [][]string{
		{"ID", v.ID},
		{"Name", v.Name},
		{"Tenant", v.Tenant + " (" + v.TenantID + ")"},
		{"Token ends in", v.Hint},
		{"Environment", v.Environment},
		{"Scopes", strings.Join(v.Scopes, " ")},
		{"Allowed from", operate.Anywhere(v.Allow)},
		{"Own limits", operate.OrDash(v.OwnLimits())},
		{"Status", v.Status},
		{"Created", v.CreatedAt},
		{"Expires", operate.Never(v.ExpiresAt)},
		{"Revoked", operate.Never(v.RevokedAt)},
		{"Disabled", operate.Never(v.DisabledAt)},
		{"Replaced by", operate.OrDash(v.ReplacedBy)},
		{"Last used", operate.Never(v.LastUsedAt)},
		{"Last refused", operate.Never(v.LastRefusedAt)},
	}}
}

// printToken prints a view with a new token. On a terminal it adds a warning on standard error.
func (a *app) printToken(view any, token string) error {
	if !a.OutTerminal || a.asData() {
		return a.printSecret(view, token)
	}
	a.note("")
	if err := a.printSecret(view, token); err != nil {
		return err
	}
	a.note("")
	a.note("This token is not stored and will not be shown again: copy it now.")
	return nil
}

type keyList struct {
	Tenant   reference      `arg:"" optional:"" help:"ID or name (default: all tenants)."`
	Expiring operate.Moment `placeholder:"WHEN" help:"Only keys in use that expire within 30d, or up to a UTC date, 2026-12-31."`
	limiting
}

func (c *keyList) Run(ctx context.Context, a *app, operator operate.Operator) error {
	expiring, err := c.Expiring.After(a.now())
	if err != nil {
		return usageErrorf("--expiring: %v", err)
	}
	t := table{
		head: []string{
			"ID", "TENANT", "NAME", "HINT", "ENV", "SCOPES", "ALLOWED FROM", "OWN LIMITS", "STATUS", "EXPIRES",
			"LAST USED", "LAST REFUSED",
		},
		spare: []string{"LAST REFUSED", "HINT", "OWN LIMITS", "ALLOWED FROM", "ENV", "SCOPES", "LAST USED", "EXPIRES"},
		none:  "There are no keys. The first: `keyadmin key create TENANT`",
	}
	find := operate.FindKeys{OfTenant: operate.OfTenant{Tenant: string(c.Tenant)}}
	keys := rowsOf(ctx, operator, find, c.rows(a))
	if expiring != 0 {
		t.none = "No key expires until " + expiring.String() + "."
		all := rowsOf(ctx, operator, find, 0)
		keys = func(yield func(operate.KeyView, error) bool) {
			for v, err := range all {
				if (err != nil || v.ExpiresUntil(expiring)) && !yield(v, err) {
					return
				}
			}
		}
	}
	return printList(a, &c.limiting, keys, t, func(v operate.KeyView) []string {
		return []string{
			v.ID, v.Tenant, v.Name, v.Hint, v.Environment, strings.Join(v.Scopes, " "), operate.Anywhere(v.Allow),
			operate.OrDash(v.OwnLimits()), v.Status, operate.Never(v.ExpiresAt), operate.Never(v.LastUsedAt),
			operate.Never(v.LastRefusedAt),
		}
	})
}

// showKey prints one key.
func (a *app) showKey(ctx context.Context, key id.Key) error {
	v, err := a.operator.ShowKey(ctx, key)
	if err != nil {
		return err
	}
	return a.print(v, keySheet(v))
}

type keyShow struct{ operate.KeyRef }

func (c *keyShow) Run(ctx context.Context, a *app, _ operate.Operator) error {
	return a.showKey(ctx, c.Key.Key)
}

type keyWhoami struct{}

func (keyWhoami) Run(ctx context.Context, a *app, operator operate.Operator) error {
	token, err := a.token()
	if err != nil {
		return err
	}
	if _, err := apikey.Parse(token); err != nil {
		return fmt.Errorf("this is not a token: %w", err)
	}
	k, err := operator.Store.KeyByToken(ctx, string(token))
	if errors.Is(err, keystore.ErrNotFound) {
		return errors.New("no key has this token")
	}
	if err != nil {
		return err
	}
	return a.showKey(ctx, k.ID)
}
