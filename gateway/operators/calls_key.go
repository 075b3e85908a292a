package operators

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// keyRef names a key.
type keyRef struct {
	Key id.Key `json:"key" required:"yes" help:"The key's ID, key_…"`
}

// keyOf reads a key and its tenant.
func (v *visit) keyOf(key id.Key) (t operate.Owner, k keystore.Key, err error) {
	if k, err = v.operator.Store.Key(v.ctx, key); err == nil {
		t, err = v.operator.OwnerOf(v.ctx, k)
	}
	return t, k, err
}

func (v *visit) viewKey(t operate.Owner, k keystore.Key) (operate.KeyView, error) {
	ban, err := v.operator.Ban(v.ctx, k.ID)
	return operate.ViewKey(k, t, ban.Until, v.operator.Now()), err
}

// ofKey prepares a change of a key.
func (v *visit) ofKey(key id.Key, prepare func(operate.Owner, keystore.Key) (operate.Operation, error)) (operate.Operation, error) {
	t, k, err := v.keyOf(key)
	if err != nil {
		return operate.Operation{}, err
	}
	return prepare(t, k)
}

// someTenant selects a tenant, or all.
type someTenant struct {
	Tenant string `json:"tenant" help:"Only those of this tenant: ID or name."`
}

// tenantID returns the tenant's ID; zero: all tenants.
func (v *visit) tenantID(a someTenant) (id.Tenant, error) {
	if a.Tenant == "" {
		return id.Tenant{}, nil
	}
	t, err := v.tenant(a.Tenant)
	return t.ID, err
}

// noPage is the failure of a cursor that no page has returned.
var noPage = invalid([]problem{{"after", "no page has returned this: use the address in the header Link, or begin with the first page"}})

func (v *visit) keys(a *someTenant, most int) (views []operate.KeyView, after func(int) string, err error) {
	var last id.Key
	if v.after != "" {
		if last, err = id.ParseKey(v.after); err != nil {
			return nil, nil, noPage
		}
	}
	tenant, err := v.tenantID(*a)
	if err != nil {
		return nil, nil, err
	}
	found, err := v.operator.Store.FindKeys(v.ctx, tenant, last, most)
	if err != nil {
		return nil, nil, err
	}
	views, err = keystore.Collect(v.operator.ViewKeys(v.ctx, func(yield func(keystore.Key, error) bool) {
		for _, k := range found {
			if !yield(k, nil) {
				return
			}
		}
	}))
	return views, func(i int) string { return views[i].ID }, err
}

// block is a CIDR block.
type block struct{ netip.Prefix }

// UnmarshalText reads a block. A bare address is the block of that address alone.
func (b *block) UnmarshalText(text []byte) (err error) {
	b.Prefix, err = operate.ParseBlock(string(text))
	return err
}

func prefixes(blocks []block) []netip.Prefix {
	return viewsOf(blocks, func(b block) netip.Prefix { return b.Prefix })
}

// terms are what can be changed of a key.
type terms struct {
	Name    operate.Name    `json:"name" help:"What the key is for."`
	Expires operate.Moment  `json:"expires" help:"When the key expires: after 90d or 1w, or at a UTC date, 2026-12-31."`
	Scopes  []operate.Scope `json:"scopes" help:"Scopes that operations of the API need, or usage:read."`
	Allow   []block         `json:"allow" help:"Addresses from which the key may be used, as CIDR blocks."`
}

// read returns the expiry (0: none was given) and the scopes.
func (a *terms) read(now instant.Millis) (expiresAt instant.Millis, scopes apikey.Scopes, err error) {
	if expiresAt, err = a.Expires.After(now); err != nil {
		return 0, "", invalid([]problem{{"expires", err.Error()}})
	}
	if scopes, err = operate.ScopesOf(a.Scopes); err != nil {
		err = invalid([]problem{{"scopes", err.Error()}})
	}
	return expiresAt, scopes, err
}

type createKey struct {
	tenantRef
	terms
	Environment apikey.Environment `json:"environment" help:"live or test (default: live)."`
	Minute      operate.Limit      `json:"minute" help:"Requests with this key in any 60 seconds, within its tenant's limit."`
	Day         operate.Limit      `json:"day" help:"Requests with this key in a UTC day, within its tenant's limit."`
}

func (v *visit) createKey(a *createKey) (operate.Operation, error) {
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return operate.Operation{}, err
	}
	owner, err := v.operator.Owner(v.ctx, t)
	if err != nil {
		return operate.Operation{}, err
	}
	spec := keystore.KeySpec{Tenant: t.ID, Name: string(a.Name), Environment: a.Environment, Allow: prefixes(a.Allow), Limits: limits{Minute: a.Minute, Day: a.Day}.limits()}
	spec.ExpiresAt, spec.Scopes, err = a.read(v.operator.Now())
	return v.operator.CreateKey(owner, spec), err
}

func (v *visit) showKey(a *keyRef) (operate.KeyView, error) {
	t, k, err := v.keyOf(a.Key)
	if err != nil {
		return operate.KeyView{}, err
	}
	return v.viewKey(t, k)
}

type updateKey struct {
	keyRef
	terms
	AllowAny  bool                `json:"allowAny" help:"The key may be used from anywhere."`
	NoExpires bool                `json:"noExpires" help:"The key never expires."`
	Minute    operate.LimitChange `json:"minute" help:"Requests with this key in any 60 seconds, within its tenant's limit; 0 removes the limit."`
	Day       operate.LimitChange `json:"day" help:"Requests with this key in a UTC day, within its tenant's limit; 0 removes the limit."`
}

func (v *visit) updateKey(a *updateKey) (operate.Operation, error) {
	expiresAt, scopes, err := a.read(v.operator.Now())
	if err != nil {
		return operate.Operation{}, err
	}
	limits := limitChanges{Minute: a.Minute, Day: a.Day}.limits()
	switch {
	case a.Name == "" && scopes == "" && len(a.Allow) == 0 && !a.AllowAny && expiresAt == 0 && !a.NoExpires && !limits.IsSet():
		err = invalid([]problem{{"name", "there is nothing to change: give name, scopes, allow, allowAny, expires, noExpires, minute or day"}})
	case a.AllowAny && len(a.Allow) > 0:
		err = invalid([]problem{{"allowAny", "it removes the allow-list: do not combine it with allow"}})
	case a.NoExpires && expiresAt != 0:
		err = invalid([]problem{{"noExpires", "it removes the expiry: do not combine it with expires"}})
	}
	if err != nil {
		return operate.Operation{}, err
	}
	return v.ofKey(a.Key, func(t operate.Owner, k keystore.Key) (operate.Operation, error) {
		return v.operator.UpdateKey(t, k, func(k *keystore.Key) {
			if a.Name != "" {
				k.Name = string(a.Name)
			}
			if scopes != "" {
				k.Scopes = scopes
			}
			if len(a.Allow) > 0 || a.AllowAny {
				k.Allow = prefixes(a.Allow)
			}
			if expiresAt != 0 || a.NoExpires {
				k.ExpiresAt = expiresAt
			}
			k.Limits = k.Limits.Changed(limits)
		}), nil
	})
}

type rotateKey struct {
	keyRef
	Grace operate.Grace `json:"grace" help:"How long the old key still works: 7d, 24h, 0 = not at all (default: 24h)."`
}

func (v *visit) rotateKey(a *rotateKey) (operate.Operation, error) {
	return v.ofKey(a.Key, func(t operate.Owner, k keystore.Key) (operate.Operation, error) {
		return v.operator.RotateKey(t, k, a.Grace), nil
	})
}

// ofKey prepares a change that has no arguments but its key.
func ofKey(prepare func(operate.Operator, operate.Owner, keystore.Key) operate.Operation) func(*visit, *keyRef) (operate.Operation, error) {
	return func(v *visit, a *keyRef) (operate.Operation, error) {
		return v.ofKey(a.Key, func(t operate.Owner, k keystore.Key) (operate.Operation, error) {
			return prepare(v.operator, t, k), nil
		})
	}
}

// tokenField is the only argument that may have a token, in a body.
const tokenField = "token"

type whoami struct {
	Token string `json:"token" required:"yes" help:"The token of a key."`
}

func (v *visit) whoami(a *whoami) (operate.KeyView, error) {
	k, err := v.operator.Store.KeyByToken(v.ctx, strings.TrimSpace(a.Token))
	if err != nil {
		return operate.KeyView{}, err
	}
	return v.showKey(&keyRef{k.ID})
}

func (v *visit) bans(a *someTenant, most int) (views []operate.BanView, after func(int) string, err error) {
	var until instant.Millis
	var key id.Key
	if v.after != "" { // the end in ms, and the key
		end, name, _ := strings.Cut(v.after, ".")
		ms, notNumber := strconv.ParseInt(end, 10, 64)
		if key, err = id.ParseKey(name); err != nil || notNumber != nil {
			return nil, nil, noPage
		}
		until = instant.Millis(ms)
	}
	tenant, err := v.tenantID(*a)
	if err != nil {
		return nil, nil, err
	}
	found, err := v.operator.Store.FindBans(v.ctx, tenant, until, key, most)
	return viewsOf(found, func(b keystore.NamedBan) operate.BanView { return operate.ViewBan(b.Ban, b.TenantName, b.KeyName) }),
		func(i int) string { return fmt.Sprintf("%d.%s", found[i].Until, found[i].Key) }, err
}

type addBan struct {
	keyRef
	For    operate.Period `json:"for" required:"yes" help:"How long: 1h, 7d."`
	Reason operate.Name   `json:"reason" required:"yes" help:"Why, for the audit log. The tenant does not see it."`
	Tell   operate.Notice `json:"tell" help:"What to tell the tenant in the refusals, such as how to get the ban lifted."`
}

func (v *visit) addBan(a *addBan) (operate.Operation, error) {
	return v.ofKey(a.Key, func(t operate.Owner, k keystore.Key) (operate.Operation, error) {
		return v.operator.AddBan(t, k, time.Duration(a.For), string(a.Reason), string(a.Tell)), nil
	})
}

func (v *visit) liftBan(a *keyRef) (operate.Operation, error) {
	return v.ofKey(a.Key, func(t operate.Owner, k keystore.Key) (operate.Operation, error) {
		return v.operator.LiftBan(v.ctx, t, k)
	})
}

// usagePeriod is the time that is looked at.
type usagePeriod struct {
	Since operate.Moment `json:"since" help:"How far back: 24h, 1w, or from a date: 2026-11-20 (default: 7d)."`
	Until operate.Moment `json:"until" help:"Leave out what is later: 24h, 1w, or from a date on: 2026-12-01."`
}

func (a usagePeriod) of(now instant.Millis) (since, until instant.Millis, err error) {
	if a.Since == (operate.Moment{}) {
		a.Since.Period = 7 * 24 * time.Hour
	}
	if since, until, err = operate.Between(a.Since, a.Until, now); err != nil {
		err = invalid([]problem{{"until", err.Error()}})
	}
	return since, until, err
}

type tenantUsage struct {
	tenantRef
	usagePeriod
	By operate.Grouping `json:"by" help:"Group by hour or day (both in UTC), operation, key, outcome, or several of them with commas (default: day,key,outcome)."`
}

func (v *visit) usage(a *tenantUsage) ([]operate.UsageView, error) {
	switch {
	case a.By == operate.Grouping{}:
		a.By = operate.Grouping{Period: 24 * time.Hour, Key: true, Outcome: true}
	case a.By.Period == time.Minute:
		return nil, invalid([]problem{{"by", "minutes are in " + Root + "/tenants/{tenant}/usage/minutes"}})
	}
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return nil, err
	}
	since, until, err := a.of(v.operator.Now())
	if err != nil {
		return nil, err
	}
	views, _, _, err := v.operator.Usage(v.ctx, t.ID, since, until, a.By)
	return views, err
}

type tenantMinutes struct {
	tenantRef
	usagePeriod
}

func (v *visit) minutes(a *tenantMinutes) ([]operate.MinuteView, error) {
	now := v.operator.Now()
	since, until, err := a.of(now)
	if err != nil {
		return nil, err
	}
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return nil, err
	}
	return v.operator.Minutes(v.ctx, t.ID, max(since, now.Add(-keystore.MinutesKept)), until)
}

type topUsage struct {
	usagePeriod
	N int `json:"n" help:"The first n tenants: 1 to 1000 (default: 20)."`
}

func (v *visit) topUsage(a *topUsage) ([]operate.TopView, error) {
	since, until, err := a.of(v.operator.Now())
	if err != nil {
		return nil, err
	}
	if a.N < 0 || a.N > rowsMax {
		return nil, invalid([]problem{{"n", fmt.Sprintf("%d is out of range: use 1 to %d", a.N, rowsMax)}})
	}
	if a.N == 0 {
		a.N = 20
	}
	return v.operator.TopUsage(v.ctx, since, until, a.N)
}

func (v *visit) deprecated(*noArguments) ([]operate.DeprecatedView, error) {
	views, _, err := v.operator.ViewDeprecated(v.ctx, 0, math.MaxInt32)
	return views, err
}

type explain struct {
	Key       id.Key          `json:"key" help:"The key's ID, key_…"`
	Tenant    string          `json:"tenant" help:"The tenant's ID or name."`
	Token     string          `json:"token" help:"The token of a key."`
	From      operate.Address `json:"from" help:"The client's address, for keys with an allow-list."`
	Operation string          `json:"operation" help:"The operation, as the API's document names it."`
}

func (v *visit) explain(a *explain) (e operate.Explanation, err error) {
	given := slices.DeleteFunc([]bool{!a.Key.IsZero(), a.Tenant != "", a.Token != ""}, func(isGiven bool) bool { return !isGiven })
	switch {
	case len(given) != 1:
		return e, invalid([]problem{{"key", "give one of key, tenant and token"}})
	case a.Token != "":
		return v.operator.ExplainToken(v.ctx, []byte(strings.TrimSpace(a.Token)), a.From.Addr, a.Operation)
	case a.Tenant == "":
		k, err := v.operator.Store.Key(v.ctx, a.Key)
		if err != nil {
			return e, err
		}
		return v.operator.Explain(v.ctx, k, a.From.Addr, a.Operation)
	case a.From.IsValid() || a.Operation != "":
		return e, invalid([]problem{{"from", "from and operation are for a key: its allow-list and its scopes decide"}})
	}
	t, err := v.tenant(a.Tenant)
	if err != nil {
		return e, err
	}
	return v.operator.ExplainTenant(v.ctx, t)
}

type findEvents struct {
	someTenant
	Since operate.Moment `json:"since" help:"How far back: 1h, 1w, or from a date: 2026-11-20 (default: all)."`
	Key   id.Key         `json:"key" help:"Only changes of this key: its ID, key_…"`
	Actor string         `json:"actor" help:"Only changes by this operator or gateway."`
	Kind  string         `json:"kind" help:"Only changes of this kind: key.revoked, for example, or key for all changes of keys."`
}

func (v *visit) audit(a *findEvents, most int) (views []operate.EventView, after func(int) string, err error) {
	filter, before := keystore.EventFilter{Key: a.Key, Actor: a.Actor, Kind: a.Kind}, int64(0)
	if v.after != "" {
		if before, err = strconv.ParseInt(v.after, 10, 64); err != nil || before < 1 {
			return nil, nil, noPage
		}
	}
	if known := keystore.EventKindsAndGroups(); a.Kind != "" && !slices.Contains(known, a.Kind) {
		return nil, nil, invalid([]problem{{"kind", fmt.Sprintf("%q is not a kind of change: use %s", a.Kind, strings.Join(known, ", "))}})
	}
	if a.Since != (operate.Moment{}) {
		filter.Since = a.Since.Before(v.operator.Now())
	}
	if filter.Tenant, err = v.tenantID(a.someTenant); err != nil {
		return nil, nil, err
	}
	found, err := v.operator.Store.FindEvents(v.ctx, filter, keystore.Change(before), most)
	return viewsOf(found, operate.ViewEvent), func(i int) string { return strconv.FormatInt(int64(found[i].ID), 10) }, err
}

type lostRef struct {
	ID string `json:"id" required:"yes" help:"The key's or the tenant's ID."`
}

func (v *visit) dropLost(a *lostRef) (operate.Operation, error) {
	all, err := v.lost(nil)
	i := slices.IndexFunc(all, func(l operate.LostView) bool { return l.Key == a.ID || l.Key == "" && l.Tenant == a.ID })
	if err == nil && i < 0 {
		err = fmt.Errorf("%w: no refusal of %q was lost", keystore.ErrNotFound, a.ID)
	}
	if err != nil {
		return operate.Operation{}, err
	}
	lost := all[i]
	tenant, err := id.ParseTenant(lost.Tenant)
	if err != nil {
		return operate.Operation{}, err
	}
	var key id.Key
	if lost.Key != "" {
		key, err = id.ParseKey(lost.Key)
	}
	return operate.Operation{Laggard: "may still refuse it", Change: func(ctx context.Context) (operate.Outcome, error) {
		change, err := v.operator.Store.DropLost(ctx, tenant, key)
		return operate.Outcome{Change: change, View: lost}, err
	}}, err
}
