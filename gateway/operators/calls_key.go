package operators

import (
	"slices"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
)

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

// ofEnvironment selects keys.
type ofEnvironment struct {
	Environment apikey.Environment `json:"environment" help:"Of the keys: live or test (default: live)."`
}

type tenantUsage struct {
	operate.TenantRef
	operate.UsagePeriod
	ofEnvironment
	By operate.Grouping `json:"by" default:"day,key,outcome" help:"Group by hour or day (both in UTC), operation, key, outcome, or several of them with commas."`
}

func (v *visit) usage(a *tenantUsage) ([]operate.UsageView, error) {
	if a.By.Period == time.Minute {
		return nil, invalid(mistake{"by", "minutes are in " + Root + "/tenants/{tenant}/usage/minutes"})
	}
	t, err := v.operator.Tenant(v.ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	since, until, err := a.Of(v.operator.Now())
	if err != nil {
		return nil, err
	}
	views, _, _, err := v.operator.Usage(v.ctx, t.ID, a.Environment, since, until, a.By)
	return views, err
}

type tenantMinutes struct {
	operate.TenantRef
	operate.UsagePeriod
	ofEnvironment
}

func (v *visit) minutes(a *tenantMinutes) ([]operate.MinuteView, error) {
	now := v.operator.Now()
	since, until, err := a.Of(now)
	if err != nil {
		return nil, err
	}
	t, err := v.operator.Tenant(v.ctx, a.Tenant)
	if err != nil {
		return nil, err
	}
	return v.operator.Minutes(v.ctx, t.ID, a.Environment, max(since, now.Add(-usage.MinutesKept)), until)
}

type topUsage struct {
	operate.UsagePeriod
	N rows `json:"n" default:"20" help:"The first n tenants: 1 to 1000."`
}

func (v *visit) topUsage(a *topUsage) ([]operate.TopView, error) {
	since, until, err := a.Of(v.operator.Now())
	if err != nil {
		return nil, err
	}
	return v.operator.TopUsage(v.ctx, since, until, int(a.N))
}

func (v *visit) deprecated(*noArguments) ([]operate.DeprecatedView, error) {
	views, _, err := v.operator.ViewDeprecated(v.ctx)
	return views, err
}

func (v *visit) explain(a *operate.NextCall) (e operate.Explanation, err error) {
	given := slices.DeleteFunc([]bool{!a.Key.IsZero(), a.Tenant != "", a.Token != ""},
		func(isGiven bool) bool { return !isGiven })
	if len(given) != 1 {
		return e, invalid(mistake{"key", "give one of key, tenant and token"})
	}
	return a.Explain(v.ctx, v.operator)
}
