package operate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
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

	Owner Owner `json:"-"` // the tenant
}

// ViewKey returns the view of a key that is banned until the given time; 0: it is not banned.
func ViewKey(k keystore.Key, t Owner, bannedUntil, now instant.Millis) KeyView {
	allow := make([]string, 0, len(k.Allow))
	for _, block := range k.Allow {
		allow = append(allow, block.String())
	}
	v := KeyView{
		ID: k.ID.String(), TenantID: k.Tenant.String(), Tenant: t.Name, Name: k.Name, Hint: k.Hint,
		Environment: k.Environment.String(), Scopes: k.Scopes.Names(), Allow: allow, Limits: ViewLimits(k.Limits), Status: keyStatus(k, t, bannedUntil, now),
		CreatedAt: k.CreatedAt.String(), ExpiresAt: k.ExpiresAt.String(), RevokedAt: k.Enabled().RevokedAt.String(), DisabledAt: k.DisabledAt().String(),
		GraceEndsAt: k.GraceEndsAt.String(), BannedUntil: bannedUntil.String(), LastUsedAt: k.LastUsedAt.String(),
		LastRefusedAt: k.RefusedAt.String(), Owner: t,
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

// keysViewed is how many keys are viewed at once.
const keysViewed = 1000

// ViewKeys returns the views of a list of keys. It reads their tenants and their bans for many of them at once.
func (o Operator) ViewKeys(ctx context.Context, keys iter.Seq2[keystore.Key, error]) iter.Seq2[KeyView, error] {
	return func(yield func(KeyView, error) bool) {
		some := make([]keystore.Key, 0, keysViewed)
		view := func() (goOn bool) {
			tenants, ids := make([]id.Tenant, len(some)), make([]id.Key, len(some))
			for i, k := range some {
				tenants[i], ids[i] = k.Tenant, k.ID
			}
			owners, err := o.Owners(ctx, slices.Compact(tenants))
			if err != nil {
				return yield(KeyView{}, err)
			}
			bans, err := o.Store.BansOf(ctx, ids)
			if err != nil {
				return yield(KeyView{}, err)
			}
			for _, k := range some {
				if !yield(ViewKey(k, owners[k.Tenant], bans[k.ID].Until, o.Now()), nil) {
					return false
				}
			}
			some = some[:0]
			return true
		}
		for k, err := range keys {
			if err != nil {
				yield(KeyView{}, err)
				return
			}
			if some = append(some, k); len(some) == keysViewed && !view() {
				return
			}
		}
		if len(some) > 0 {
			view()
		}
	}
}

// decide returns whether the key may call a gateway of its environment at an instant, and if not, why. An invalid address of the
// client ignores the allow-list.
func decide(k keystore.Key, t Owner, client netip.Addr, bannedUntil, now instant.Millis) access.Reason {
	key := k.Access(bannedUntil)
	if !client.IsValid() {
		key.Allow = nil
	}
	return access.Decide(key, access.Tenant{Suspended: t.Suspended, Limits: t.LimitsIn(k.Environment)},
		access.Call{Environment: k.Environment, Client: client, Now: now})
}

// keyStatus is a short text for what happens to a request with the key. It ignores the allow-list, because the address of the client
// is not known.
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

// prepare prepares a change of the key.
func (a KeyRef) prepare(ctx context.Context, o Operator, change func(Owner, keystore.Key) Operation) (Operation, error) {
	t, k, err := o.Key(ctx, a.Key.Key)
	if err != nil {
		return Operation{}, err
	}
	return change(t, k), nil
}

// terms reads the expiry of a key (0: none was given) and its scopes.
func (o Operator) terms(expires Moment, scopes []Scope) (instant.Millis, apikey.Scopes, error) {
	at, err := expires.After(o.Now())
	if err != nil {
		return 0, "", wrongArgument("--expires", err)
	}
	set, err := ScopesOf(scopes)
	return at, set, wrongArgument("--scope", err)
}

// CreateKey are the arguments of key create.
type CreateKey struct {
	TenantRef
	Name    Name    `default:"default" json:"name" placeholder:"NAME" help:"What the key is for."`
	Expires Moment  `json:"expires" placeholder:"WHEN" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31 (default: never)."`
	Scopes  []Scope `name:"scope" json:"scopes" placeholder:"SCOPE" help:"A scope of the key: one that an operation of the API needs, or usage:read (default: all but usage:read). Repeatable."`
	Allow   []Block `json:"allow" placeholder:"CIDR" help:"Addresses from which the key may be used (default: any). Repeatable."`
	Minute  Limit   `json:"minute" placeholder:"N" help:"Requests with this key in any 60 seconds, within its tenant's limit."`
	Day     Limit   `json:"day" placeholder:"N" help:"Requests with this key in a UTC day, within its tenant's limit."`
	Test    bool    `help:"A key for gateways of the test environment."`
	Repeatable

	Environment apikey.Environment `kong:"-" json:"environment" help:"live or test (default: live)."`
}

// Prepare prepares the new key, or finds one that is valid now and has its name.
func (a CreateKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	expiresAt, scopes, err := o.terms(a.Expires, a.Scopes)
	if err != nil {
		return Operation{}, err
	}
	t, err := o.Tenant(ctx, a.Tenant)
	if err != nil {
		return Operation{}, err
	}
	owner, err := o.Owner(ctx, t)
	if err != nil {
		return Operation{}, err
	}
	if a.IfNotExists {
		for k, err := range o.Store.Keys(ctx, t.ID) {
			if err != nil || k.Name == string(a.Name) && k.InUse(o.Now()) {
				return o.keepKey(owner, k), err
			}
		}
	}
	if a.Test {
		a.Environment = apikey.Test
	}
	return o.CreateKey(owner, keystore.KeySpec{
		Tenant: t.ID, Name: string(a.Name), Environment: a.Environment, Scopes: scopes, Allow: Prefixes(a.Allow), ExpiresAt: expiresAt,
		Limits: LimitsOf(a.Minute, a.Day, 0),
	}), nil
}

// keepKey is for a key that was to be created and exists.
func (o Operator) keepKey(t Owner, k keystore.Key) Operation {
	return Operation{
		Laggard: "may not accept this key yet",
		Change: func(ctx context.Context) (Outcome, error) {
			change, err := o.Store.LastEvent(ctx)
			return Outcome{
				Change: change, View: ViewKey(k, t, 0, o.Now()), Existed: true,
				Done: "Key " + Describe(k) + " of tenant " + t.Name + " already exists. Its token cannot be shown again.",
			}, err
		},
	}
}

// UpdateKey are the arguments of key update.
type UpdateKey struct {
	KeyRef
	Name      Name        `json:"name" placeholder:"NAME" help:"What the key is for."`
	Scopes    []Scope     `name:"scope" json:"scopes" placeholder:"SCOPE" help:"The key's scopes, instead of those it has. Repeatable."`
	Allow     []Block     `json:"allow" placeholder:"CIDR" help:"Addresses from which the key may be used, instead of those it has. Repeatable."`
	AllowAny  bool        `json:"allowAny" help:"The key may be used from anywhere."`
	Expires   Moment      `json:"expires" placeholder:"WHEN" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31."`
	NoExpires bool        `json:"noExpires" help:"The key never expires."`
	Minute    LimitChange `json:"minute" placeholder:"N" help:"Requests with this key in any 60 seconds, within its tenant's limit; none removes the limit."`
	Day       LimitChange `json:"day" placeholder:"N" help:"Requests with this key in a UTC day, within its tenant's limit; none removes the limit."`
}

// Check finds out whether there is something to change, and whether the arguments contradict each other.
func (a UpdateKey) Check() error {
	expires := a.Expires != Moment{}
	switch {
	case a.Allow != nil && len(a.Allow) == 0:
		return ArgumentError("--allow is empty: --allow-any removes the allow-list")
	case a.Name == "" && len(a.Scopes)+len(a.Allow) == 0 && !a.AllowAny && !expires && !a.NoExpires && a.Minute == 0 && a.Day == 0:
		return ArgumentError("give --name, --scope, --allow, --allow-any, --expires, --no-expires, --minute or --day")
	case a.AllowAny && len(a.Allow) > 0:
		return ArgumentError("--allow-any removes the allow-list: do not combine it with --allow")
	case a.NoExpires && expires:
		return ArgumentError("--no-expires removes the expiry: do not combine it with --expires")
	}
	return nil
}

// Prepare prepares the change.
func (a UpdateKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	expiresAt, scopes, err := o.terms(a.Expires, a.Scopes)
	if err != nil {
		return Operation{}, err
	}
	return a.prepare(ctx, o, func(t Owner, k keystore.Key) Operation {
		return o.UpdateKey(t, k, func(k *keystore.Key) {
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
			k.Limits = k.Limits.Changed(LimitsOf(a.Minute, a.Day, 0))
		})
	})
}

// RotateKey are the arguments of key rotate.
type RotateKey struct {
	KeyRef
	Grace Grace `json:"grace" placeholder:"AGE" help:"How long the old key still works: 7d, 24h, 0 = not at all (default: 24h)."`
}

// Prepare prepares the rotation.
func (a RotateKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, func(t Owner, k keystore.Key) Operation { return o.RotateKey(t, k, a.Grace) })
}

// DisableKey is the argument of key disable.
type DisableKey struct{ KeyRef }

// Prepare prepares the pause.
func (a DisableKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, o.DisableKey)
}

// EnableKey is the argument of key enable.
type EnableKey struct{ KeyRef }

// Prepare prepares the end of a pause.
func (a EnableKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, o.EnableKey)
}

// RevokeKey is the argument of key revoke.
type RevokeKey struct{ KeyRef }

// Prepare prepares the end of the key.
func (a RevokeKey) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, o.RevokeKey)
}

// CreateKey prepares a new key. The view of its outcome is the only place of the token.
func (o Operator) CreateKey(t Owner, spec keystore.KeySpec) Operation {
	return Operation{
		Laggard: "may not accept this key yet",
		Change: func(ctx context.Context) (Outcome, error) {
			if err := o.checkTerms(ctx, keystore.Key{}, keystore.Key{Scopes: spec.Scopes, Limits: spec.Limits}); err != nil {
				return Outcome{}, err
			}
			// Nothing that can fail may come after the creation of the token.
			key, token, change, err := o.Store.CreateKey(ctx, spec)
			if err != nil && !keystore.IsUnknown(err) {
				return Outcome{}, err
			}
			view := ViewKey(key, t, 0, o.Now())
			view.Token = token
			return Outcome{Change: change, View: view, Done: fmt.Sprintf("Created %s key %s of tenant %s.", key.Environment, Describe(key), t.Name) + neverBinds(key, t)}, err
		},
	}
}

// neverBinds says which limits of a key are not below its tenant's, so that they never refuse a request. Empty: none.
func neverBinds(k keystore.Key, t Owner) (text string) {
	of := t.LimitsIn(k.Environment)
	for policy, limit := range k.Limits.Set() {
		if tenants := of.Of(policy); tenants != 0 && limit >= tenants {
			text += fmt.Sprintf(" Its own limit of %s per %s never binds: its tenant has %s.", Plural(limit, "request"), policy, humanize.Comma(tenants))
		}
	}
	return text
}

// checkTerms refuses limits that a key did not have before and that never admit a request of some operation. It also refuses new scopes
// that no operation of the registered gateways needs. If no gateway says what it serves, it accepts all: keys may be made first.
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
			return fmt.Errorf("%w: no operation of the registered gateways needs the scope %q: use %s", keystore.ErrInvalid, name,
				strings.Join(append(known.Names(), apikey.UsageRead), ", "))
		}
	}
	return nil
}

// RevokeKey prepares the end of a key.
func (o Operator) RevokeKey(t Owner, k keystore.Key) Operation {
	return Operation{
		Question: fmt.Sprintf("Revoke key %s of tenant %s? It cannot be undone.", Describe(k), t.Name),
		Laggard:  "may still accept this key",
		Change: func(ctx context.Context) (Outcome, error) {
			revoked, change, err := o.Store.RevokeKey(ctx, k.ID)
			return Outcome{Change: change, View: ViewKey(revoked, t, 0, o.Now()), Done: Either(k.RevokedAt <= 0,
				"Revoked key "+Describe(k)+" of tenant "+t.Name+".",
				"Key "+Describe(k)+" of tenant "+t.Name+" was already revoked.")}, err
		},
	}
}

// DisableKey prepares a pause of a key, which EnableKey ends.
func (o Operator) DisableKey(t Owner, k keystore.Key) Operation {
	return Operation{
		Question: fmt.Sprintf("Disable key %s of tenant %s? It is refused until it is enabled.", Describe(k), t.Name),
		Laggard:  "may still accept this key",
		Change: func(ctx context.Context) (Outcome, error) {
			disabled, change, err := o.Store.DisableKey(ctx, k.ID)
			return Outcome{Change: change, View: ViewKey(disabled, t, 0, o.Now()), Done: Either(k.DisabledAt() == 0,
				"Disabled key "+Describe(k)+" of tenant "+t.Name+".", "Key "+Describe(k)+" of tenant "+t.Name+" was already disabled.")}, err
		},
	}
}

// EnableKey prepares the end of a pause.
func (o Operator) EnableKey(t Owner, k keystore.Key) Operation {
	return Operation{
		Laggard: "may still refuse this key",
		Change: func(ctx context.Context) (Outcome, error) {
			enabled, change, err := o.Store.EnableKey(ctx, k.ID)
			return Outcome{Change: change, View: ViewKey(enabled, t, 0, o.Now()), Done: Either(k.DisabledAt() != 0,
				"Enabled key "+Describe(k)+" of tenant "+t.Name+".", "Key "+Describe(k)+" of tenant "+t.Name+" was not disabled.")}, err
		},
	}
}

// UpdateKey prepares a change of the name, the scopes, the allow-list, the expiry and the limits of a key. edit may be called more than once.
func (o Operator) UpdateKey(t Owner, k keystore.Key, edit func(*keystore.Key)) Operation {
	will, question := k, ""
	if edit(&will); will.Limits.Narrows(k.Limits) && will.Limits.Check() == nil {
		question = fmt.Sprintf("Lower the limits of key %s of tenant %s: %s?", Describe(k), t.Name, MovedTerms(k, will))
	}
	return Operation{
		Question: question, Laggard: "may still apply the key's old terms",
		Change: func(ctx context.Context) (Outcome, error) {
			after := k
			edit(&after)
			if err := o.checkTerms(ctx, k, after); err != nil {
				return Outcome{}, err
			}
			updated, change, err := o.Store.UpdateKey(ctx, k.ID, edit)
			changes := MovedTerms(k, updated)
			return Outcome{Change: change, View: ViewKey(updated, t, 0, o.Now()), Done: Either(changes != "",
				fmt.Sprintf("Changed key %s of tenant %s: %s.", Describe(k), t.Name, changes)+neverBinds(updated, t),
				fmt.Sprintf("Key %s of tenant %s already has these settings.", Describe(k), t.Name))}, err
		},
	}
}

// MovedTerms describes a change of a key: `expires never → 2026-12-31T00:00:00Z`.
func MovedTerms(was, is keystore.Key) string {
	terms := func(k keystore.Key) []string {
		v := ViewKey(k, Owner{}, 0, 0)
		return []string{fmt.Sprintf("%q", v.Name), strings.Join(v.Scopes, " "), Anywhere(v.Allow), Never(v.ExpiresAt), cmp.Or(Limits(k.Limits), "none")}
	}
	before, after := terms(was), terms(is)
	var parts []string
	for i, term := range []string{"name", "scopes", "allowed from", "expires", "own limits"} {
		if before[i] != after[i] {
			parts = append(parts, term+" "+before[i]+" → "+after[i])
		}
	}
	return strings.Join(parts, ", ")
}

// Grace is how long the old key works after a rotation. The zero value is the default, a day.
type Grace struct {
	Given  bool
	Length time.Duration // if given
}

const graceDefault = 24 * time.Hour

// after returns when the grace period ends.
func (g Grace) after(now instant.Millis) instant.Millis {
	if g.Given {
		return now.Add(g.Length)
	}
	return now.Add(graceDefault)
}

// RotationView is the result of a rotation as JSON.
type RotationView struct {
	KeyView
	Replaces       string `json:"replaces"`
	OldGraceEndsAt string `json:"oldGraceEndsAt"`
	Repeated       bool   `json:"repeated"` // an earlier rotation holds, and its token is not known
}

// Rotation is a rotation that was made, or that holds since earlier.
type Rotation struct {
	RotationView
	Was, Old, Fresh keystore.Key // the old key before and after, and the one that replaces it
}

// RotateKey prepares the replacement of a key. The view of its outcome is a Rotation, and the only place of the new token.
func (o Operator) RotateKey(t Owner, k keystore.Key, grace Grace) Operation {
	graceEndsAt := grace.after(o.Now())
	question := fmt.Sprintf("Rotate key %s of tenant %s? The old token %s.", Describe(k), t.Name,
		Either(grace.Given && grace.Length == 0, "ends at once", "works until "+graceEndsAt.String()))
	if !k.ReplacedBy.IsZero() {
		question = ""
		if grace.Given && k.RevokedAt == 0 && graceEndsAt < k.GraceEndsAt {
			question = fmt.Sprintf("Key %s of tenant %s was already rotated: %s replaces it. Let the old token end at %s, not at %s?",
				Describe(k), t.Name, k.ReplacedBy, graceEndsAt, k.GraceEndsAt)
		}
	}
	return Operation{
		Question: question, Harmless: !grace.Given || grace.Length > 0,
		Laggard: "may not accept the new key yet, and may accept the old one for too long",
		Change: func(ctx context.Context) (Outcome, error) {
			// Nothing that can fail may come after the creation of the token.
			fresh, token, change, err := o.Store.RotateKey(ctx, k.ID, graceEndsAt)
			if err != nil && !keystore.IsUnknown(err) {
				return Outcome{}, err
			}
			r := Rotation{Was: k, Old: k, Fresh: fresh, RotationView: RotationView{
				KeyView: ViewKey(fresh, t, 0, o.Now()), Replaces: k.ID.String(), OldGraceEndsAt: graceEndsAt.String(),
				Repeated: token == "",
			}}
			r.Token = token
			if r.Repeated {
				return o.repeatedRotation(ctx, t, r, grace, change)
			}
			return Outcome{Change: change, View: r, Done: fmt.Sprintf("Rotated key %s of tenant %s: %s replaces it. The old key works until %s.",
				Describe(k), t.Name, Describe(fresh), r.OldGraceEndsAt)}, err
		},
	}
}

// repeatedRotation is the outcome for a key that was rotated before. A shorter grace period, if it was given, holds from now on.
func (o Operator) repeatedRotation(ctx context.Context, t Owner, r Rotation, grace Grace, change keystore.Change) (Outcome, error) {
	var err error
	if grace.Given {
		r.Old, change, err = o.Store.ShortenGrace(ctx, r.Was.ID, grace.after(o.Now()))
	} else {
		r.Old, err = o.Store.Key(ctx, r.Was.ID)
	}
	if err != nil {
		return Outcome{}, err
	}
	r.OldGraceEndsAt = r.Old.GraceEndsAt.String()
	done := fmt.Sprintf("Key %s was already rotated: %s replaces it. The old key works until %s.%s", Describe(r.Old), Describe(r.Fresh),
		r.Old.GraceEndsAt, Either(grace.Given, " A grace period does not get longer.", ""))
	switch {
	case r.Old.RevokedAt != 0:
		done = fmt.Sprintf("Ended the old key %s of tenant %s: %s replaces it.", Describe(r.Old), t.Name, Describe(r.Fresh))
	case r.Shortened():
		done = fmt.Sprintf("The old key %s of tenant %s works until %s, not until %s: %s replaces it.", Describe(r.Old), t.Name,
			r.Old.GraceEndsAt, r.Was.GraceEndsAt, Describe(r.Fresh))
	}
	return Outcome{Change: change, View: r, Done: done}, nil
}

// Shortened reports whether the grace period of a key that was rotated before ends earlier now.
func (r Rotation) Shortened() bool { return r.Old.GraceEndsAt < r.Was.GraceEndsAt }
