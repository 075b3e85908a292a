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
	"petgate/shared/service"
)

type keyCommands struct {
	Create  keyCreate  `cmd:"" help:"Issue a key; its token is shown once."`
	Update  keyUpdate  `cmd:"" help:"Change the name, scopes, allow-list, expiry or limits of a key."`
	List    keyList    `cmd:"" help:"List keys."`
	Show    keyShow    `cmd:"" help:"Show one key: status, scopes, last use."`
	Disable keyDisable `cmd:"" help:"Refuse a key until it is enabled."`
	Enable  keyEnable  `cmd:"" help:"Accept a key again that was disabled."`
	Revoke  keyRevoke  `cmd:"" help:"End a key at once and permanently."`
	Rotate  keyRotate  `cmd:"" help:"Replace a key; the old one works until its grace period ends."`
	Whoami  keyWhoami  `cmd:"" help:"Show the key of a token read from standard input."`
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

type keyCreate struct {
	ofTenant
	Name    name    `default:"default" placeholder:"NAME" help:"What the key is for."`
	Expires moment  `placeholder:"WHEN" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31 (default: never)."`
	Scope   []scope `placeholder:"SCOPE" help:"A scope of the key: one that an operation of the API needs, or usage:read (default: all but usage:read). Repeatable."`
	Allow   []block `placeholder:"CIDR" help:"Addresses from which the key may be used (default: any). Repeatable."`
	Minute  limit   `placeholder:"N" help:"Requests with this key in any 60 seconds, within its tenant's limit."`
	Day     limit   `placeholder:"N" help:"Requests with this key in a UTC day, within its tenant's limit."`
	Test    bool    `help:"A key for gateways of the test environment."`
	ifNotExists
	waiting
}

func (c *keyCreate) Run(ctx context.Context, a *app, t keystore.Tenant) error {
	scopes, err := operate.ScopesOf(c.Scope)
	if err != nil {
		return err
	}
	spec := keystore.KeySpec{Name: string(c.Name), Environment: apikey.Live, Scopes: scopes, Allow: prefixes(c.Allow), Limits: limitFlags{Minute: c.Minute, Day: c.Day}.limits()}
	if c.Test {
		spec.Environment = apikey.Test
	}
	if spec.ExpiresAt, err = c.Expires.after(a.now(), "--expires"); err != nil {
		return err
	}
	o, err := a.operator.Owner(ctx, t)
	if err != nil {
		return err
	}
	spec.Tenant = t.ID
	if c.IfNotExists {
		if k, exists, err := a.working(ctx, t.ID, spec.Name); err != nil || exists {
			if err == nil {
				err = a.keepKey(ctx, k, o, c.Wait)
			}
			return err
		}
	}
	op := a.operator.CreateKey(o, spec)
	return a.carryOut(ctx, operation{
		Operation: op, wait: c.Wait, print: func(r operate.Outcome) error { return a.printCreated(r, o) },
	})
}

// working finds a key of a tenant that is valid now, by its name.
func (a *app) working(ctx context.Context, t id.Tenant, name string) (keystore.Key, bool, error) {
	for k, err := range a.store.Keys(ctx, t) {
		if err != nil || k.Name == name && k.InUse(a.now()) {
			return k, err == nil, err
		}
	}
	return keystore.Key{}, false, nil
}

// keepKey says that a key exists, and waits until all gateways know it.
func (a *app) keepKey(ctx context.Context, k keystore.Key, t operate.Owner, wait patience) error {
	return a.carryOut(ctx, operation{wait: wait, Operation: operate.Operation{
		Laggard: "may not accept this key yet",
		Change: func(ctx context.Context) (operate.Outcome, error) {
			change, err := a.store.LastEvent(ctx)
			return operate.Outcome{
				Change: change, View: operate.ViewKey(k, t, 0, a.now()),
				Done: "Key " + operate.Describe(k) + " of tenant " + t.Name + " already exists. Its token cannot be shown again.",
			}, err
		},
	}})
}

// printCreated prints a new key, and notes on its limits and its tenant.
func (a *app) printCreated(r operate.Outcome, t operate.Owner) error {
	a.note("%s", r.Done)
	if err := a.printToken(r.View); err != nil {
		return err
	}
	if limits := operate.Limits(t.Limits); limits != "" && a.ErrTerminal {
		a.note("Limits belong to the tenant: all its keys share %s.", limits)
	}
	a.noteQuota(t.View())
	if t.Suspended {
		a.warn("Tenant %s is suspended: its keys are refused. To resume it: keyadmin tenant resume %s", t.Name, operate.ShellWord(t.Name))
	}
	return nil
}

// tokenOf returns the new token in the view of an outcome, if there is one, and the view as scripts get it.
func tokenOf(view any) (data any, token string) {
	switch v := view.(type) {
	case operate.KeyView:
		return v, v.Token
	case operate.Rotation:
		return v.RotationView, v.Token
	}
	return view, ""
}

// printToken prints a view with a new token. On a terminal it adds a warning on standard error.
func (a *app) printToken(view any) error {
	data, token := tokenOf(view)
	if !a.OutTerminal || a.asData() {
		return a.printSecret(data, token)
	}
	a.note("")
	if err := a.printSecret(data, token); err != nil {
		return err
	}
	a.note("")
	a.warn("This token is not stored and will not be shown again: copy it now.")
	return nil
}

type keyList struct {
	Tenant   string `arg:"" optional:"" help:"ID or name (default: all tenants)."`
	Expiring moment `placeholder:"WHEN" help:"Only keys in use that expire within 30d, or up to a UTC date, 2026-12-31."`
	limiting
}

func (c *keyList) Run(ctx context.Context, a *app, store *keystore.Store) error {
	expiring, err := c.Expiring.after(a.now(), "--expiring")
	if err != nil {
		return err
	}
	only := id.Tenant{}
	if c.Tenant != "" {
		t, err := a.tenant(ctx, c.Tenant)
		if err != nil {
			return err
		}
		only = t.ID
	}
	keys, n := store.Keys(ctx, only), c.rows(a)
	t := table{
		head:  []string{"ID", "TENANT", "NAME", "HINT", "ENV", "SCOPES", "ALLOWED FROM", "OWN LIMITS", "STATUS", "EXPIRES", "LAST USED", "LAST REFUSED"},
		spare: []string{"LAST REFUSED", "HINT", "OWN LIMITS", "ALLOWED FROM", "ENV", "SCOPES", "LAST USED", "EXPIRES"},
		none:  "There are no keys. The first: `keyadmin key create TENANT`",
	}
	switch {
	case expiring != 0:
		t.none = "No key expires until " + expiring.String() + "."
		all := keys
		keys = first(&c.limiting, n, func(yield func(keystore.Key, error) bool) {
			for k, err := range all {
				isMeant := err != nil || k.ExpiresAt != 0 && k.ExpiresAt <= expiring && k.InUse(a.now())
				if isMeant && !yield(k, err) {
					return
				}
			}
		})
	case n > 0:
		page, err := store.FindKeys(ctx, only, id.Key{}, n+1)
		keys = latest(&c.limiting, n, page, err)
	}
	return printList(a, &c.limiting, a.operator.ViewKeys(ctx, keys), t, func(v operate.KeyView) []string {
		return []string{
			v.ID, v.Tenant, v.Name, v.Hint, v.Environment, strings.Join(v.Scopes, " "), operate.Anywhere(v.Allow),
			operate.OrDash(v.OwnLimits()), v.Status, operate.Never(v.ExpiresAt), operate.Never(v.LastUsedAt), operate.Never(v.LastRefusedAt),
		}
	})
}

// showKey prints one key.
func (a *app) showKey(ctx context.Context, k ownedKey) error {
	ban, err := a.operator.Ban(ctx, k.Key.ID)
	if err != nil {
		return err
	}
	v := operate.ViewKey(k.Key, k.Owner, ban.Until, a.now())
	return a.print(v, keySheet(v))
}

type keyShow struct {
	ofKey
}

func (*keyShow) Run(ctx context.Context, a *app, k ownedKey) error { return a.showKey(ctx, k) }

type keyRevoke struct {
	ofKey
	asking
	waiting
}

func (c *keyRevoke) Run(ctx context.Context, a *app, k ownedKey) error {
	return a.carryOut(ctx, operation{Operation: a.operator.RevokeKey(k.Owner, k.Key), yes: c.Yes, wait: c.Wait})
}

type keyDisable keyRevoke

func (c *keyDisable) Run(ctx context.Context, a *app, k ownedKey) error {
	return a.carryOut(ctx, operation{Operation: a.operator.DisableKey(k.Owner, k.Key), yes: c.Yes, wait: c.Wait})
}

type keyEnable struct {
	ofKey
	waiting
}

func (c *keyEnable) Run(ctx context.Context, a *app, k ownedKey) error {
	return a.carryOut(ctx, operation{Operation: a.operator.EnableKey(k.Owner, k.Key), wait: c.Wait})
}

type keyWhoami struct{}

func (keyWhoami) Run(ctx context.Context, a *app, store *keystore.Store) error {
	token, err := a.token()
	if err != nil {
		return err
	}
	if _, err := apikey.Parse(token); err != nil {
		return fmt.Errorf("this is not a token: %w", err)
	}
	k, err := store.KeyByToken(ctx, string(token))
	if errors.Is(err, keystore.ErrNotFound) {
		return errors.New("no key has this token")
	}
	if err != nil {
		return err
	}
	t, err := a.operator.OwnerOf(ctx, k)
	if err != nil {
		return err
	}
	return a.showKey(ctx, ownedKey{t, k})
}

type keyUpdate struct {
	ofKey
	Name      name                `placeholder:"NAME" help:"What the key is for."`
	Scope     []scope             `placeholder:"SCOPE" help:"The key's scopes, instead of those it has. Repeatable."`
	Allow     []block             `placeholder:"CIDR" help:"Addresses from which the key may be used, instead of those it has. Repeatable."`
	AllowAny  bool                `help:"The key may be used from anywhere."`
	Expires   moment              `placeholder:"WHEN" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31."`
	NoExpires bool                `help:"The key never expires."`
	Minute    operate.LimitChange `placeholder:"N" help:"Requests with this key in any 60 seconds, within its tenant's limit; none removes the limit."`
	Day       operate.LimitChange `placeholder:"N" help:"Requests with this key in a UTC day, within its tenant's limit; none removes the limit."`
	asking
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
	bad.Require(c.Name != "" || len(c.Scope) > 0 || len(c.Allow) > 0 || c.AllowAny || expires || c.NoExpires || c.Minute != 0 || c.Day != 0, "",
		"give --name, --scope, --allow, --allow-any, --expires, --no-expires, --minute or --day")
	bad.Require(!c.AllowAny || len(c.Allow) == 0, "", "--allow-any removes the allow-list: do not combine it with --allow")
	bad.Require(!c.NoExpires || !expires, "", "--no-expires removes the expiry: do not combine it with --expires")
	return bad
}

func (c *keyUpdate) Run(ctx context.Context, a *app, k ownedKey) error {
	expiresAt, err := c.Expires.after(a.now(), "--expires")
	if err != nil {
		return err
	}
	scopes, err := operate.ScopesOf(c.Scope)
	if err != nil {
		return err
	}
	edit := func(k *keystore.Key) {
		if c.Name != "" {
			k.Name = string(c.Name)
		}
		if scopes != "" {
			k.Scopes = scopes
		}
		if len(c.Allow) > 0 || c.AllowAny {
			k.Allow = prefixes(c.Allow)
		}
		if expiresAt != 0 || c.NoExpires {
			k.ExpiresAt = expiresAt
		}
		k.Limits = k.Limits.Changed(limitChangeFlags{Minute: c.Minute, Day: c.Day}.limits())
	}
	return a.carryOut(ctx, operation{Operation: a.operator.UpdateKey(k.Owner, k.Key, edit), yes: c.Yes, wait: c.Wait})
}

type keyRotate struct {
	ofKey
	Grace grace `placeholder:"AGE" help:"How long the old key still works: 7d, 24h, 0 = not at all (default: 24h)."`
	asking
	waiting
}

func (c *keyRotate) Run(ctx context.Context, a *app, k ownedKey) error {
	return a.carryOut(ctx, operation{
		Operation: a.operator.RotateKey(k.Owner, k.Key, c.Grace), yes: c.Yes, wait: c.Wait, print: a.printRotated,
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
	if r.Repeated && !a.asData() {
		return nil
	}
	return a.printToken(r)
}
