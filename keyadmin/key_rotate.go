package main

import (
	"context"

	"petgate/shared/operate"
)

type keyRotate struct {
	ofKey
	Grace grace `placeholder:"AGE" help:"How long the old key still works: 7d, 24h, 0 = not at all (default: 24h)."`
	asking
	waiting
}

// grace is how long the old key works after a rotation. The zero value is the default.
type grace operate.Grace

func (g *grace) UnmarshalText(text []byte) error {
	length, err := operate.ParseDuration(string(text))
	*g = grace{Given: true, Length: length}
	return err
}

func (c *keyRotate) Run(ctx context.Context, a *app, k ownedKey) error {
	return a.carryOut(ctx, operation{
		Operation: a.operator.RotateKey(k.Owner, k.Key, operate.Grace(c.Grace)), yes: c.Yes, wait: c.Wait, print: a.printRotated,
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
