package operate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
)

// KeyView is a key as JSON; scripts rely on its fields.
type KeyView struct {
	ID          string     `json:"id"`
	Token       string     `json:"token,omitempty"` // only of a new key
	TenantID    string     `json:"tenantId"`
	Tenant      string     `json:"tenant"`
	Name        string     `json:"name"`
	Hint        string     `json:"hint"` // the token's last characters
	Environment string     `json:"environment"`
	Scopes      []string   `json:"scopes"`
	Allow       []string   `json:"allow"`  // CIDR blocks; empty: from anywhere
	Limits      LimitsView `json:"limits"` // the key's own, within its tenant's; null: none
	Status      string     `json:"status"`
	CreatedAt   string     `json:"createdAt"`
	ExpiresAt   string     `json:"expiresAt,omitempty"`
	RevokedAt   string     `json:"revokedAt,omitempty"`
	GraceEndsAt string     `json:"graceEndsAt,omitempty"`
	ReplacedBy  string     `json:"replacedBy,omitempty"`
	BannedUntil string     `json:"bannedUntil,omitempty"`
	LastUsedAt  string     `json:"lastUsedAt,omitempty"` // of a call that was charged, or answered free of charge

	LastRefusedAt string `json:"lastRefusedAt,omitempty"` // of a call that was refused before it was charged
	DisabledAt    string `json:"disabledAt,omitempty"`

	expiresAt instant.Millis
	refusal   access.Reason // of a call; access.Allowed: it is not refused
}

// ExpiresUntil reports whether the key is in use, and expires at an instant or before.
func (v KeyView) ExpiresUntil(at instant.Millis) bool {
	switch v.refusal {
	case access.Revoked, access.Disabled, access.Expired, access.Replaced:
		return false
	}
	return v.expiresAt != 0 && v.expiresAt <= at
}

// ViewKey returns the view of a key that is banned until the given time; 0: it is not banned.
func ViewKey(k keystore.Key, t Owner, bannedUntil, now instant.Millis) KeyView {
	v := KeyView{
		ID:            k.ID.String(),
		TenantID:      k.Tenant.String(),
		Tenant:        t.Name,
		Name:          k.Name,
		Hint:          k.Hint,
		Environment:   k.Environment.String(),
		Scopes:        k.Scopes.Names(),
		Allow:         ViewsOf(k.Allow, netip.Prefix.String),
		Limits:        ViewLimits(k.Limits),
		Status:        keyStatus(k, t, bannedUntil, now),
		CreatedAt:     k.CreatedAt.String(),
		ExpiresAt:     k.ExpiresAt.String(),
		RevokedAt:     k.RevokedAt.String(),
		DisabledAt:    k.DisabledAt.String(),
		GraceEndsAt:   k.GraceEndsAt.String(),
		BannedUntil:   bannedUntil.String(),
		LastUsedAt:    k.LastUsedAt.String(),
		LastRefusedAt: k.RefusedAt.String(),
		expiresAt:     k.ExpiresAt,
		refusal:       decide(k, t, netip.Addr{}, bannedUntil, now),
	}
	if !k.ReplacedBy.IsZero() {
		v.ReplacedBy = k.ReplacedBy.String()
	}
	return v
}

// ShowKey finds a key.
func (o Operator) ShowKey(ctx context.Context, key id.Key) (v KeyView, err error) {
	t, k, err := o.Key(ctx, key)
	if err != nil {
		return v, err
	}
	ban, err := o.Ban(ctx, k.ID)
	return ViewKey(k, t, ban.Until, o.Now()), err
}

// ViewKeys returns the views of keys.
func (o Operator) ViewKeys(ctx context.Context, keys []keystore.Key) ([]KeyView, error) {
	owners, err := o.Owners(ctx, slices.Compact(ViewsOf(keys, func(k keystore.Key) id.Tenant { return k.Tenant })))
	if err != nil {
		return nil, err
	}
	bans, err := lists.Of(o.Store).BansOf(ctx, ViewsOf(keys, func(k keystore.Key) id.Key { return k.ID }))
	view := func(k keystore.Key) KeyView { return ViewKey(k, owners[k.Tenant], bans[k.ID].Until, o.Now()) }
	return ViewsOf(keys, view), err
}

// decide returns whether the key may call a gateway of its environment at an instant, and if not,
// why. Without a valid address of the client, the allow-list does not matter.
func decide(k keystore.Key, t Owner, client netip.Addr, bannedUntil, now instant.Millis) access.Reason {
	key := k.Access(bannedUntil)
	if !client.IsValid() {
		key.Allow = nil
	}
	return access.Decide(key, access.Tenant{Suspended: t.Suspended, Limits: t.LimitsIn(k.Environment)},
		access.Call{Environment: k.Environment, Client: client, Now: now})
}

// keyStatus is a short text for what happens to a request with the key. It ignores the allow-list,
// because the address of the client is not known.
func keyStatus(k keystore.Key, t Owner, bannedUntil, now instant.Millis) string {
	switch decide(k, t, netip.Addr{}, bannedUntil, now) {
	case access.Revoked:
		return "revoked"
	case access.Disabled:
		return "disabled"
	case access.Expired:
		return "expired"
	case access.Replaced:
		return "rotated"
	case access.Banned:
		return "banned until " + bannedUntil.String()
	case access.TenantSuspended:
		return "tenant suspended"
	case access.QuotaNotSet:
		return "no quota"
	}
	if k.GraceEndsAt != 0 {
		return "rotating until " + k.GraceEndsAt.String()
	}
	return "active"
}

// OwnLimits describes the limits of the key itself. Empty: it has none.
func (v KeyView) OwnLimits() string { return Limits(v.Limits.limits()) }

// Describe names a key in a sentence.
func Describe(k keystore.Key) string { return fmt.Sprintf("%s %q", k.ID, k.Name) }

// KeyRef names a key.
type KeyRef struct {
	Key KeyID `arg:"" json:"key" required:"" help:"The key's ID, key_…"`
}

// keyChange is a change of one key. In its texts, KEY is the key.
type keyChange struct {
	ask, laggard  string // see Operation
	done, already string // sentences, if the key was changed and if it was so before
	made          func(context.Context, id.Key) (keystore.Key, keystore.Change, error)
}

// change prepares a change that sets when the key was revoked or disabled.
func (a KeyRef) change(ctx context.Context, o Operator, c keyChange) (Operation, error) {
	t, k, err := o.Key(ctx, a.Key.Key)
	named := func(text string) string { return strings.Replace(text, "KEY", Describe(k)+" of tenant "+t.Name, 1) }
	return Operation{Question: named(c.ask), Laggard: c.laggard, Change: func(ctx context.Context) (Outcome, error) {
		is, change, err := c.made(ctx, k.ID)
		isChanged := is.RevokedAt != k.RevokedAt || is.DisabledAt != k.DisabledAt
		return Outcome{
			Change: change,
			View:   ViewKey(is, t, 0, o.Now()),
			Done:   named(Either(isChanged, c.done, c.already)),
		}, err
	}}, err
}

// DisableKey is the argument of key disable.
type DisableKey struct{ KeyRef }

// Prepare prepares a pause of the key, which EnableKey ends.
func (a DisableKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.change(ctx, o, keyChange{
		ask: "Disable key KEY? It is refused until it is enabled.", laggard: "may still accept this key",
		done: "Disabled key KEY.", already: "Key KEY was already disabled.", made: o.Store.DisableKey,
	})
}

// EnableKey is the argument of key enable.
type EnableKey struct{ KeyRef }

// Prepare prepares the end of a pause.
func (a EnableKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.change(ctx, o, keyChange{
		laggard: "may still refuse this key",
		done:    "Enabled key KEY.",
		already: "Key KEY was not disabled.",
		made:    o.Store.EnableKey,
	})
}

// RevokeKey is the argument of key revoke.
type RevokeKey struct{ KeyRef }

// Prepare prepares the end of the key.
func (a RevokeKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.change(ctx, o, keyChange{
		ask: "Revoke key KEY? It cannot be undone.", laggard: "may still accept this key",
		done: "Revoked key KEY.", already: "Key KEY was already revoked.", made: o.Store.RevokeKey,
	})
}

// terms reads the expiry of a key (0: none was given) and its scopes.
func (o Operator) terms(expires Moment, scopes []Scope) (instant.Millis, apikey.Scopes, error) {
	at, err := expires.After(o.Now())
	if err != nil {
		return 0, "", wrongArgument("expires", err)
	}
	set, err := ScopesOf(scopes)
	return at, set, wrongArgument("scopes", err)
}

// checkTerms refuses limits that a key did not have before and that never admit a request of some
// operation. It also refuses new scopes that no operation of the registered gateways needs. If no
// gateway says what it serves, it accepts all: keys may be made first.
func (o Operator) checkTerms(ctx context.Context, before, after keystore.Key) error {
	if after.Limits != before.Limits {
		if err := o.admitsCosts(ctx, after.Limits); err != nil {
			return err
		}
	}
	known, isKnown, err := o.Store.Scopes(ctx)
	if err != nil || !isKnown {
		return err
	}
	for _, name := range after.Scopes.Names() {
		if !before.Scopes.Has(name) && !known.Has(name) && name != apikey.UsageRead {
			return fmt.Errorf("%w: no operation of the registered gateways needs the scope %q: use %s",
				keystore.ErrInvalid, name, strings.Join(append(known.Names(), apikey.UsageRead), ", "))
		}
	}
	return nil
}

// neverBinds says which limits of a key are not below its tenant's, so that they never refuse a
// request. Empty: none.
func neverBinds(k keystore.Key, t Owner) (text string) {
	of := t.LimitsIn(k.Environment)
	for policy, limit := range k.Limits.Set() {
		if tenants := of.Of(policy); tenants != 0 && limit >= tenants {
			text += fmt.Sprintf(" Its own limit of %s per %s never binds: its tenant has %s.", Plural(limit, "request"),
				policy, humanize.Comma(tenants))
		}
	}
	return text
}

// CreateKey are the arguments of key create.
type CreateKey struct {
	TenantRef
	Name    Name    `default:"default" json:"name" placeholder:"NAME" help:"What the key is for."`
	Expires Moment  `json:"expires" placeholder:"WHEN" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31 (default: never)."`
	Scopes  []Scope `name:"scope" json:"scopes" placeholder:"SCOPE" help:"A scope of the key: one that an operation of the API needs, or usage:read (default: all but usage:read). Repeatable."`
	Allow   []Block `json:"allow" title:"Allowed from" placeholder:"CIDR" help:"Addresses from which the key may be used (default: any). Repeatable."`
	Minute  Limit   `json:"minute" title:"Per minute" placeholder:"N" help:"Requests with this key in any 60 seconds, within its tenant's limit."`
	Day     Limit   `json:"day" title:"Per day" placeholder:"N" help:"Requests with this key in a UTC day, within its tenant's limit."`
	Test    bool    `help:"A key for gateways of the test environment."`
	Repeatable

	Environment apikey.Environment `kong:"-" json:"environment" help:"live or test (default: live)."`
}

// Prepare prepares the new key, or finds one that is valid now and has its name. The view of its
// outcome is the only place of the token.
func (a CreateKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	expiresAt, scopes, err := o.terms(a.Expires, a.Scopes)
	if err != nil {
		return Operation{}, err
	}
	t, err := o.Tenant(ctx, a.Tenant)
	if err != nil {
		return Operation{}, err
	}
	op := Operation{Laggard: "may not accept this key yet"}
	if a.IfNotExists {
		for k, err := range lists.Of(o.Store).Keys(ctx, t.ID) {
			if err != nil || k.Name == string(a.Name) && k.InUse(o.Now()) {
				op.Change = func(ctx context.Context) (Outcome, error) {
					change, err := o.Store.LastEvent(ctx)
					what := "Key " + Describe(k) + " of tenant " + t.Name
					return Outcome{
						Change: change,
						View:   ViewKey(k, t, 0, o.Now()),
						Done:   what + " already exists. Its token cannot be shown again.",
					}, err
				}
				return op, err
			}
		}
	}
	if a.Test {
		a.Environment = apikey.Test
	}
	spec := keystore.KeySpec{
		Tenant:      t.ID,
		Name:        string(a.Name),
		Environment: a.Environment,
		Scopes:      scopes,
		Allow:       Prefixes(a.Allow),
		ExpiresAt:   expiresAt,
		Limits:      NewLimits{Minute: a.Minute, Day: a.Day}.Limits(),
	}
	op.Change = func(ctx context.Context) (Outcome, error) {
		terms := keystore.Key{Scopes: spec.Scopes, Limits: spec.Limits}
		if err := o.checkTerms(ctx, keystore.Key{}, terms); err != nil {
			return Outcome{}, err
		}
		// Nothing that can fail may come after the creation of the token.
		key, token, change, err := o.Store.CreateKey(ctx, spec)
		if err != nil && !keystore.IsUnknown(err) {
			return Outcome{}, err
		}
		view := ViewKey(key, t, 0, o.Now())
		view.Token = token
		return Outcome{
			Change: change, View: view, Hint: t.keyHint(Limits(key.Limits)),
			Done: fmt.Sprintf("Created %s key %s of tenant %s.", key.Environment, Describe(key), t.Name) + neverBinds(
				key, t),
		}, err
	}
	return op, nil
}

// keyHint says what a new key of the tenant shares and has of its own, or why it is refused.
func (t Owner) keyHint(own string) (text string) {
	if limits := Limits(t.Limits); limits != "" {
		text = " Limits belong to the tenant: all its keys share " + limits + "."
	}
	if own != "" {
		text += " This key's own limits: " + own + "."
	}
	if t.Suspended {
		text += "\nTenant " + t.Name + " is suspended: its keys are refused. To resume it: keyadmin tenant " +
			"resume " + ShellWord(
			t.Name,
		)
	}
	return text + t.quotaHint()
}

// UpdateKey are the arguments of key update.
type UpdateKey struct {
	KeyRef
	Name      Name        `json:"name" placeholder:"NAME" help:"What the key is for."`
	Scopes    []Scope     `name:"scope" json:"scopes" placeholder:"SCOPE" help:"The key's scopes, instead of those it has. Repeatable."`
	Allow     []Block     `json:"allow" title:"Allowed from" placeholder:"CIDR" help:"Addresses from which the key may be used, instead of those it has. Repeatable."`
	AllowAny  bool        `json:"allowAny" help:"The key may be used from anywhere."`
	Expires   Moment      `json:"expires" placeholder:"WHEN" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31."`
	NoExpires bool        `json:"noExpires" help:"The key never expires."`
	Minute    LimitChange `json:"minute" title:"Per minute" placeholder:"N" help:"Requests with this key in any 60 seconds, within its tenant's limit."`
	Day       LimitChange `json:"day" title:"Per day" placeholder:"N" help:"Requests with this key in a UTC day, within its tenant's limit."`
}

// isEmpty reports whether nothing is to be changed.
func (a UpdateKey) isEmpty() bool {
	return a.Name == "" && len(a.Scopes) == 0 && len(a.Allow) == 0 && !a.AllowAny &&
		a.Expires == Moment{} && !a.NoExpires && a.Minute == 0 && a.Day == 0
}

// Check finds out whether there is something to change, and whether the arguments contradict each
// other.
func (a UpdateKey) Check() error {
	expires := a.Expires != Moment{}
	switch {
	case a.Allow != nil && len(a.Allow) == 0:
		return mistaken(Flag("allow"), " is empty: ", Flag("allowAny"), " removes the allow-list")
	case a.isEmpty():
		return mistaken("give ", Flag("name"), ", ", Flag("scopes"), ", ", Flag("allow"), ", ", Flag("allowAny"), ", ",
			Flag("expires"), ", ", Flag("noExpires"), ", ", Flag("minute"), " or ", Flag("day"))
	case a.AllowAny && len(a.Allow) > 0:
		return mistaken(Flag("allowAny"), " removes the allow-list: do not combine it with ", Flag("allow"))
	case a.NoExpires && expires:
		return mistaken(Flag("noExpires"), " removes the expiry: do not combine it with ", Flag("expires"))
	}
	return nil
}

// Prepare prepares the change.
func (a UpdateKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	expiresAt, scopes, err := o.terms(a.Expires, a.Scopes)
	if err != nil {
		return Operation{}, err
	}
	t, k, err := o.Key(ctx, a.Key.Key)
	if err != nil {
		return Operation{}, err
	}
	edit := func(k *keystore.Key) {
		if a.Name != "" {
			k.Name = string(a.Name)
		}
		if scopes != "" {
			k.Scopes = scopes
		}
		if len(a.Allow) > 0 || a.AllowAny {
			k.Allow = Prefixes(a.Allow)
		}
		if expiresAt != 0 || a.NoExpires {
			k.ExpiresAt = expiresAt
		}
		k.Limits = k.Limits.Changed(LimitChanges{Minute: a.Minute, Day: a.Day}.Limits())
	}
	will, named := k, Describe(k)+" of tenant "+t.Name
	edit(&will)
	op := Operation{Laggard: "may still apply the key's old terms"}
	if will.Limits.Narrows(k.Limits) && will.Limits.Check() == nil {
		op.Question = "Lower the limits of key " + named + ": " + Moved(k, will) + "?"
	}
	op.Change = func(ctx context.Context) (Outcome, error) {
		if err := o.checkTerms(ctx, k, will); err != nil {
			return Outcome{}, err
		}
		updated, change, err := o.Store.UpdateKey(ctx, k.ID, edit)
		done := "Key " + named + " already has these settings."
		if changes := Moved(k, updated); changes != "" {
			done = "Changed key " + named + ": " + changes + "." + neverBinds(updated, t)
		}
		return Outcome{Change: change, View: ViewKey(updated, t, 0, o.Now()), Done: done}, err
	}
	return op, nil
}

// RotateKey are the arguments of key rotate.
type RotateKey struct {
	KeyRef
	Grace Delay `json:"grace" title:"The old token works for" placeholder:"AGE" help:"How long the old key still works: 7d, 24h, 0 = not at all (default: 24h)."`
}

// RotationView is the result of a rotation as JSON.
type RotationView struct {
	KeyView
	Replaces       string `json:"replaces"`
	OldGraceEndsAt string `json:"oldGraceEndsAt"`
	Repeated       bool   `json:"repeated"` // an earlier rotation holds, and its token is not known
}

// endsAt returns when the old key ends.
func (a RotateKey) endsAt(now instant.Millis) instant.Millis {
	return now.Add(a.Grace.Or(day))
}

// Prepare prepares the replacement of the key. The view of its outcome, a RotationView, is the only
// place of the new token.
func (a RotateKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, k, err := o.Key(ctx, a.Key.Key)
	if err != nil {
		return Operation{}, err
	}
	endsAt, question := a.endsAt(o.Now()), ""
	switch named := Describe(k) + " of tenant " + t.Name; {
	case k.ReplacedBy.IsZero():
		question = fmt.Sprintf("Rotate key %s? The old token %s.", named,
			Either(a.Grace.Or(day) == 0, "ends at once", "works until "+endsAt.String()))
	case a.Grace.Given && k.IsEnabled() && endsAt < k.GraceEndsAt:
		question = fmt.Sprintf("Key %s was already rotated: %s replaces it. Let the old token end at %s, not at %s?",
			named, k.ReplacedBy, endsAt, k.GraceEndsAt)
	}
	return Operation{
		Question: question, Harmless: a.Grace.Or(day) > 0,
		Laggard: "may not accept the new key yet, and may accept the old one for too long",
		Change: func(ctx context.Context) (Outcome, error) {
			// Nothing that can fail may come after the creation of the token.
			fresh, token, change, err := o.Store.RotateKey(ctx, k.ID, endsAt)
			if err != nil && !keystore.IsUnknown(err) {
				return Outcome{}, err
			}
			v := RotationView{
				KeyView:        ViewKey(fresh, t, 0, o.Now()),
				Replaces:       k.ID.String(),
				OldGraceEndsAt: endsAt.String(),
				Repeated:       token == "",
			}
			v.Token = token
			if v.Repeated {
				return a.again(ctx, o, k, fresh, v, change)
			}
			return Outcome{
				Change: change,
				View:   v,
				Done: fmt.Sprintf("Rotated key %s of tenant %s: %s replaces it. The old key works until %s.",
					Describe(k), t.Name, Describe(fresh), endsAt),
			}, err
		},
	}, nil
}

// again is the outcome for a key that was rotated before. A shorter grace period, if it was given,
// holds from now on.
func (a RotateKey) again(
	ctx context.Context, o Operator, was, fresh keystore.Key, v RotationView, change keystore.Change,
) (Outcome, error) {
	old, err := was, error(nil)
	if a.Grace.Given {
		old, change, err = o.Store.ShortenGrace(ctx, was.ID, a.endsAt(o.Now()))
	} else {
		old, err = o.Store.Key(ctx, was.ID)
	}
	if err != nil {
		return Outcome{}, err
	}
	v.OldGraceEndsAt = old.GraceEndsAt.String()
	r := Outcome{
		Change: change,
		View:   v,
		Hint:   "\nThe new token cannot be shown again. If it is lost: keyadmin key rotate " + v.ID,
	}
	switch named := Describe(old) + " of tenant " + v.Tenant; {
	case !old.IsEnabled():
		r.Done = fmt.Sprintf("Ended the old key %s: %s replaces it.", named, Describe(fresh))
	case old.GraceEndsAt < was.GraceEndsAt:
		r.Done = fmt.Sprintf("The old key %s works until %s, not until %s: %s replaces it.", named, old.GraceEndsAt,
			was.GraceEndsAt, Describe(fresh))
	default:
		r.Done = fmt.Sprintf("Key %s was already rotated: %s replaces it. The old key works until %s.%s", named,
			Describe(fresh), old.GraceEndsAt, Either(a.Grace.Given, " A grace period does not get longer.", ""))
		r.Hint = " To end it now: keyadmin key revoke " + old.ID.String() + r.Hint
	}
	return r, nil
}
