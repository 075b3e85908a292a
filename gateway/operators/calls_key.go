package operators

import (
	"errors"
	"fmt"
	"math"
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

// someTenant selects a tenant, or all.
type someTenant struct {
	Tenant string `json:"tenant" help:"Only those of this tenant: ID or name."`
}

// tenantID returns the tenant's ID; zero: all tenants.
func (v *visit) tenantID(a someTenant) (id.Tenant, error) {
	if a.Tenant == "" {
		return id.Tenant{}, nil
	}
	t, err := v.operator.Tenant(v.ctx, a.Tenant)
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

func (v *visit) showKey(a *operate.KeyRef) (operate.KeyView, error) {
	return v.operator.ShowKey(v.ctx, a.Key.Key)
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
	return v.operator.ShowKey(v.ctx, k.ID)
}

func (v *visit) bans(a *someTenant, most int) (views []operate.BanView, after func(int) string, err error) {
	tenant, err := v.tenantID(*a)
	if err != nil {
		return nil, nil, err
	}
	found, err := v.operator.Store.FindBans(v.ctx, tenant, v.after, most)
	if errors.Is(err, keystore.ErrNotFound) {
		return nil, nil, noPage
	}
	return operate.ViewsOf(found, func(b keystore.NamedBan) operate.BanView { return operate.ViewBan(b.Ban, b.TenantName, b.KeyName) }),
		func(i int) string { return found[i].Cursor() }, err
}

// usagePeriod is the time that is looked at.
type usagePeriod struct {
	Since operate.Moment `json:"since" default:"7d" help:"How far back: 24h, 1w, or from a date: 2026-11-20."`
	Until operate.Moment `json:"until" help:"Leave out what is later: 24h, 1w, or from a date on: 2026-12-01."`
}

func (a usagePeriod) of(now instant.Millis) (since, until instant.Millis, err error) {
	if since, until, err = operate.Between(a.Since, a.Until, now); err != nil {
		err = invalid([]problem{{"until", err.Error()}})
	}
	return since, until, err
}

// ofEnvironment selects keys.
type ofEnvironment struct {
	Environment apikey.Environment `json:"environment" help:"Of the keys: live or test (default: live)."`
}

type tenantUsage struct {
	operate.TenantRef
	usagePeriod
	ofEnvironment
	By operate.Grouping `json:"by" default:"day,key,outcome" help:"Group by hour or day (both in UTC), operation, key, outcome, or several of them with commas."`
}

func (v *visit) usage(a *tenantUsage) ([]operate.UsageView, error) {
	if a.By.Period == time.Minute {
		return nil, invalid([]problem{{"by", "minutes are in " + Root + "/tenants/{tenant}/usage/minutes"}})
	}
	t, err := v.operator.Tenant(v.ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	since, until, err := a.of(v.operator.Now())
	if err != nil {
		return nil, err
	}
	views, _, _, err := v.operator.Usage(v.ctx, t.ID, a.Environment, since, until, a.By)
	return views, err
}

type tenantMinutes struct {
	operate.TenantRef
	usagePeriod
	ofEnvironment
}

func (v *visit) minutes(a *tenantMinutes) ([]operate.MinuteView, error) {
	now := v.operator.Now()
	since, until, err := a.of(now)
	if err != nil {
		return nil, err
	}
	t, err := v.operator.Tenant(v.ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	return v.operator.Minutes(v.ctx, t.ID, a.Environment, max(since, now.Add(-keystore.MinutesKept)), until)
}

type topUsage struct {
	usagePeriod
	N rows `json:"n" default:"20" help:"The first n tenants: 1 to 1000."`
}

func (v *visit) topUsage(a *topUsage) ([]operate.TopView, error) {
	since, until, err := a.of(v.operator.Now())
	if err != nil {
		return nil, err
	}
	return v.operator.TopUsage(v.ctx, since, until, int(a.N))
}

func (v *visit) deprecated(*noArguments) ([]operate.DeprecatedView, error) {
	views, _, err := v.operator.ViewDeprecated(v.ctx, 0, math.MaxInt32)
	return views, err
}

func (v *visit) explain(a *operate.NextCall) (e operate.Explanation, err error) {
	given := slices.DeleteFunc([]bool{!a.Key.IsZero(), a.Tenant != "", a.Token != ""}, func(isGiven bool) bool { return !isGiven })
	if len(given) != 1 {
		return e, invalid([]problem{{"key", "give one of key, tenant and token"}})
	}
	return a.Explain(v.ctx, v.operator)
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
	return operate.ViewsOf(found, operate.ViewEvent), func(i int) string { return strconv.FormatInt(int64(found[i].ID), 10) }, err
}
