package main

import (
	"context"

	"petgate/shared/core/id"
	"petgate/shared/operate"
)

type keyRotate struct {
	Key   keyArgument `arg:"" help:"The ID of the key to replace, key_…"`
	Grace grace       `placeholder:"AGE" help:"How long the old key still works: 7d, 24h, 0 = not at all (default: 24h)."`
	asking
	waiting
}

func (keyRotate) Help() string {
	return `Without a grace period the old token ends at once; keyadmin then needs --yes where it cannot ask.

The new key has the old one's name, scopes, lifetime and allow-list, and shares the tenant's quota. Both keys work
until the grace period ends; responses to the old key have the header X-Key-Expires. Repeated within the grace period, this
command shows the earlier rotation. With a shorter --grace, the old key then ends earlier. It never works longer.

Examples:

    # A day to deploy the new token
    keyadmin key rotate key_0123456789abcdef --grace 24h > new.token

    # The old token has leaked
    keyadmin key rotate key_0123456789abcdef --grace 0 > new.token`
}

// grace is how long the old key works after a rotation. The zero value is the default.
type grace operate.Grace

func (g *grace) UnmarshalText(text []byte) error {
	length, err := operate.ParseDuration(string(text))
	*g = grace{Given: true, Length: length}
	return err
}

func (c *keyRotate) Run(ctx context.Context, a *app) error {
	t, k, err := a.openKey(ctx, id.Key(c.Key))
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		Operation: a.operator.RotateKey(t, k, operate.Grace(c.Grace)), yes: c.Yes, wait: c.Wait, print: a.printRotated,
	})
}

// printRotated prints a rotation that was made now, or says that one holds since earlier.
func (a *app) printRotated(o operate.Outcome) error {
	r := o.View.(operate.Rotation)
	switch {
	case !r.Repeated, r.Old.RevokedAt != 0, r.Shortened():
		a.note("%s", o.Done)
	default:
		a.warn("%s To end it now: keyadmin key revoke %s", o.Done, r.Old.ID)
	}
	if r.Repeated {
		a.warn("The new token cannot be shown again. If it is lost: keyadmin key rotate %s", r.Fresh.ID)
	}
	switch {
	case a.asData():
		return a.print(r.RotationView, table{})
	case r.Repeated:
		return nil
	}
	return a.printToken(r.KeyView)
}
