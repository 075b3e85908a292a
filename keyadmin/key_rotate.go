package main

import (
	"context"
	"fmt"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
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
type grace struct {
	given  bool
	length time.Duration // if given
}

const graceDefault = 24 * time.Hour

func (g *grace) UnmarshalText(text []byte) error {
	length, err := parseDuration(string(text))
	*g = grace{given: true, length: length}
	return err
}

// after returns when the grace period ends.
func (g grace) after(now instant.Millis) instant.Millis {
	if g.given {
		return now.Add(g.length)
	}
	return now.Add(graceDefault)
}

// rotationView is the result of key rotate as JSON.
type rotationView struct {
	keyView
	Replaces       string `json:"replaces"`
	OldGraceEndsAt string `json:"oldGraceEndsAt"`
	Repeated       bool   `json:"repeated"` // an earlier rotation holds, and its token is not known
}

func (c *keyRotate) Run(ctx context.Context, a *app) error {
	t, k, err := a.openKey(ctx, id.Key(c.Key))
	if err != nil {
		return err
	}
	graceEndsAt := c.Grace.after(a.now())
	question := fmt.Sprintf("Rotate key %s of tenant %s? The old token works until %s.", describe(k), t.Name, graceEndsAt)
	if !k.ReplacedBy.IsZero() {
		question = ""
		if c.Grace.given && k.RevokedAt == 0 && graceEndsAt < k.GraceEndsAt {
			question = fmt.Sprintf("Key %s of tenant %s was already rotated: %s replaces it. Let the old token end at %s, not at %s?",
				describe(k), t.Name, k.ReplacedBy, graceEndsAt, k.GraceEndsAt)
		}
	}
	return a.carryOut(ctx, operation{
		question: question, yes: c.Yes, harmless: !c.Grace.given || c.Grace.length > 0,
		wait: c.Wait, laggard: "may not accept the new key yet, and may accept the old one for too long",
		change: func() (outcome, error) {
			// Nothing that can fail may stand between creating the new token and printing it.
			fresh, token, change, err := a.store.RotateKey(ctx, k.ID, graceEndsAt)
			view := rotationView{
				keyView: viewKey(fresh, t, 0, a.now()), Replaces: k.ID.String(), OldGraceEndsAt: graceEndsAt.String(),
				Repeated: token == "",
			}
			view.Token = token
			if err == nil && view.Repeated {
				return c.repeated(ctx, a, t, k, fresh, view, change)
			}
			return outcome{change: change, print: func() error { return a.printRotated(t, k, fresh, view) }}, err
		},
	})
}

// printRotated prints a rotation that was made now.
func (a *app) printRotated(t owner, old, fresh keystore.Key, view rotationView) error {
	a.note("Rotated key %s of tenant %s: %s replaces it. The old key works until %s.", describe(old), t.Name, describe(fresh),
		view.OldGraceEndsAt)
	if a.asData() {
		return a.print(view, table{})
	}
	return a.printToken(view.keyView)
}

// repeated is the outcome for a key that was rotated before. A shorter grace period, if it was given, holds from now on.
func (c *keyRotate) repeated(
	ctx context.Context, a *app, t owner, was, fresh keystore.Key, view rotationView, change keystore.Change,
) (outcome, error) {
	var old keystore.Key
	var err error
	if c.Grace.given {
		old, change, err = a.store.ShortenGrace(ctx, was.ID, c.Grace.after(a.now()))
	} else {
		old, err = a.store.Key(ctx, was.ID)
	}
	if err != nil {
		return outcome{}, err
	}
	view.OldGraceEndsAt = old.GraceEndsAt.String()
	return outcome{change: change, print: func() error {
		switch {
		case old.RevokedAt != 0:
			a.note("Ended the old key %s of tenant %s: %s replaces it.", describe(old), t.Name, describe(fresh))
		case old.GraceEndsAt < was.GraceEndsAt:
			a.note("The old key %s of tenant %s works until %s, not until %s: %s replaces it.", describe(old), t.Name,
				old.GraceEndsAt, was.GraceEndsAt, describe(fresh))
		default:
			a.warn("Key %s was already rotated: %s replaces it. The old key works until %s.%s To end it now: keyadmin key revoke %s",
				describe(old), describe(fresh), old.GraceEndsAt, either(c.Grace.given, " A grace period does not get longer.", ""), old.ID)
		}
		a.warn("The new token cannot be shown again. If it is lost: keyadmin key rotate %s", fresh.ID)
		if a.asData() {
			return a.print(view, table{})
		}
		return nil
	}}, nil
}
