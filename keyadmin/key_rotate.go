package main

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
)

type keyRotate struct {
	Key   keyArgument `arg:"" help:"The ID of the key to replace, key_…"`
	Grace duration    `default:"24h" placeholder:"AGE" help:"How long the old key still works: 7d, 24h, 0 = not at all."`
	asking
	waiting
}

func (keyRotate) Help() string {
	return `Without a grace period the old token ends at once; keyadmin then needs --yes where it cannot ask.

The new key has the old one's name, scopes, lifetime and allow-list, and shares the tenant's quota. Both keys work
until the grace period ends; responses to the old key have the header X-Key-Expires. Repeated within the grace period, this
command changes nothing and shows the earlier rotation.

Examples:

    # A day to deploy the new token
    keyadmin key rotate key_0123456789abcdef --grace 24h > new.token`
}

// rotationView is the result of key rotate as JSON.
type rotationView struct {
	keyView
	Replaces       string `json:"replaces"`
	OldGraceEndsAt string `json:"oldGraceEndsAt"`
	Repeated       bool   `json:"repeated"` // nothing was done: an earlier rotation holds, and its token is not known
}

func (c *keyRotate) Run(ctx context.Context, a *app) error {
	t, k, err := a.openKey(ctx, id.Key(c.Key))
	if err != nil {
		return err
	}
	graceEndsAt := a.now().Add(time.Duration(c.Grace))
	return a.carryOut(ctx, operation{
		question: fmt.Sprintf("Rotate key %s of tenant %s? The old token works until %s.", describe(k), t.Name, graceEndsAt),
		yes:      c.Yes, harmless: c.Grace > 0,
		wait: c.Wait, laggard: "may not accept the new key yet, and may accept the old one for too long",
		change: func() (outcome, error) {
			// Nothing that can fail may stand between creating the new token and printing it.
			fresh, token, change, err := a.store.RotateKey(ctx, k.ID, graceEndsAt)
			view := rotationView{
				keyView: viewKey(fresh, t, 0, a.now()), Replaces: k.ID.String(), OldGraceEndsAt: graceEndsAt.String(),
				Repeated: token == "",
			}
			view.Token = token
			return outcome{change: change, print: func() error { return a.printRotated(ctx, t, k, fresh, view) }}, err
		},
	})
}

// printRotated prints a rotation that was made now, or says which one was made before.
func (a *app) printRotated(ctx context.Context, t owner, old, fresh keystore.Key, view rotationView) error {
	if view.Repeated {
		old, err := a.store.Key(ctx, old.ID)
		if err != nil {
			return err
		}
		view.OldGraceEndsAt = old.GraceEndsAt.String()
		a.warn("Key %s was already rotated: %s replaces it. The old key works until %s.\n"+
			"The new token cannot be shown again. If it is lost: keyadmin key rotate %s", describe(old), describe(fresh),
			view.OldGraceEndsAt, fresh.ID)
		if a.asData() {
			return a.print(view, table{})
		}
		return nil
	}
	a.note("Rotated key %s of tenant %s: %s replaces it. The old key works until %s.", describe(old), t.Name, describe(fresh),
		view.OldGraceEndsAt)
	if a.asData() {
		return a.print(view, table{})
	}
	return a.printToken(view.keyView)
}
