package main

import (
	"context"

	"petgate/shared/keystore"
	"petgate/shared/service"
)

type keyUpdate struct {
	ofKey
	Name      name    `placeholder:"NAME" help:"What the key is for."`
	Scope     []scope `placeholder:"SCOPE" help:"The key's scopes, instead of those it has. Repeatable."`
	Allow     []block `placeholder:"CIDR" help:"Addresses from which the key may be used, instead of those it has. Repeatable."`
	AllowAny  bool    `help:"The key may be used from anywhere."`
	Expires   moment  `placeholder:"WHEN" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31."`
	NoExpires bool    `help:"The key never expires."`
	waiting
}

// BadSettings checks that there is something to change, and that the flags do not contradict each other.
func (c *keyUpdate) BadSettings() service.BadSettings {
	var bad service.BadSettings
	expires := c.Expires != moment{}
	if c.Allow != nil && len(c.Allow) == 0 {
		bad.Require(false, "", "--allow is empty: --allow-any removes the allow-list")
		return bad
	}
	bad.Require(c.Name != "" || len(c.Scope) > 0 || len(c.Allow) > 0 || c.AllowAny || expires || c.NoExpires, "",
		"give --name, --scope, --allow, --allow-any, --expires or --no-expires")
	bad.Require(!c.AllowAny || len(c.Allow) == 0, "", "--allow-any removes the allow-list: do not combine it with --allow")
	bad.Require(!c.NoExpires || !expires, "", "--no-expires removes the expiry: do not combine it with --expires")
	return bad
}

func (c *keyUpdate) Run(ctx context.Context, a *app, k ownedKey) error {
	expiresAt, err := c.Expires.after(a.now(), "--expires")
	if err != nil {
		return err
	}
	edit := func(k *keystore.Key) {
		if c.Name != "" {
			k.Name = string(c.Name)
		}
		if len(c.Scope) > 0 {
			k.Scopes = scopesOf(c.Scope)
		}
		if len(c.Allow) > 0 || c.AllowAny {
			k.Allow = prefixes(c.Allow)
		}
		if expiresAt != 0 || c.NoExpires {
			k.ExpiresAt = expiresAt
		}
	}
	return a.carryOut(ctx, operation{Operation: a.operator.UpdateKey(k.Owner, k.Key, edit), wait: c.Wait})
}
