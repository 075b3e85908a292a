package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/redis"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/operate"
	"petgate/shared/service"
)

// aboutWithin is how long the Redis servers have to answer.
const aboutWithin = time.Second

// serveAbout serves GET /about.
func (g *gateway) serveAbout(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	answer := operate.About{
		Version:     service.Version(),
		Environment: g.cfg.Environment.String(),
		Console:     g.cfg.Console,
		Settings:    g.cfg.shared(),
		Mode:        g.limits.Mode(),
		Operations:  []operate.AboutOperation{},
		Redis:       []operate.RedisServer{},
	}
	for _, o := range g.api.Load().Operations {
		gone := !o.SunsetAt.IsZero() && !now.Before(o.SunsetAt)
		described := operate.AboutOperation{
			ID:           o.ID,
			Scopes:       strings.Fields(o.Scope),
			Gone:         gone,
			IsDeprecated: o.IsDeprecated,
			Successor:    o.Successor,
		}
		if !o.DeprecatedAt.IsZero() {
			described.DeprecatedAt = instant.Of(o.DeprecatedAt)
		}
		if !o.SunsetAt.IsZero() {
			described.SunsetAt = instant.Of(o.SunsetAt)
		}
		answer.Operations = append(answer.Operations, described)
	}
	if shared, ok := g.limits.(interface {
		Servers(ctx context.Context) []redis.Server
	}); ok {
		ctx, cancel := context.WithTimeout(r.Context(), aboutWithin)
		defer cancel()
		answer.Redis = operate.ViewsOf(shared.Servers(ctx),
			func(s redis.Server) operate.RedisServer { return operate.RedisServer(s) })
	}
	answer.NowMillis = instant.Of(time.Now())
	service.WriteJSON(w, http.StatusOK, answer)
}

// shared are the settings that should be the same at all gateways of an environment.
func (c *Config) shared() map[string]string {
	return map[string]string{
		"key-prefix":                c.KeyPrefix,
		"redis-url":                 strings.Join(c.quotas(), ","),
		"redis-prefix":              c.RedisPrefix,
		"limits-on-outage":          string(c.LimitsOnOutage),
		"directory-max-age":         c.DirectoryMaxAge.String(),
		"auth-failures-per-minute":  strconv.Itoa(c.AuthFailuresPerMinute),
		"ban-after":                 strconv.Itoa(c.BanAfter),
		"ban-for":                   c.BanFor.String(),
		"ban-max":                   c.BanMax.String(),
		"body-bytes-max":            strconv.Itoa(c.BodyBytesMax),
		"upstream-conns-per-tenant": strconv.Itoa(c.UpstreamConnsPerTenant),
	}
}

// report is nil if the limit is not set.
func report(u quota.Usage) *operate.PolicyUse {
	if u.Limit == 0 {
		return nil
	}
	return &operate.PolicyUse{
		Limit:     u.Limit,
		Used:      u.Used,
		Remaining: u.Remaining,
		ResetAt:   u.ResetAt,
		RetryAt:   u.RetryAt,
	}
}

// errUnknownTenant means that this gateway does not know a tenant.
var errUnknownTenant = errors.New("this gateway does not know the tenant")

// peek reads the terms of a tenant, and how much of its limits it has used. If a key of the tenant
// is given, also how much of the key's own limits is used. It charges nothing. cost is that of the
// request in question.
func (g *gateway) peek(
	ctx context.Context, tenant id.Tenant, key id.Key, cost int64,
) (terms directory.Terms, used quota.Verdict, err error) {
	terms, isKnown := g.keys.Terms(tenant)
	if !isKnown {
		return terms, used, fmt.Errorf("%w %s", errUnknownTenant, tenant)
	}
	q := g.ask(tenant, &terms)
	q.Cost = cost
	if k, isKnown := g.keys.Key(key); isKnown && k.Tenant == tenant {
		q.Cap = k.KeyLimits
		if q.IsCapped() {
			q.Key = key
		}
	}
	used, err = g.limits.Peek(ctx, q)
	return terms, used, err
}

// ask is a question about a tenant's quotas in this gateway's environment.
func (g *gateway) ask(tenant id.Tenant, terms *directory.Terms) (q quotas.Request) {
	q.Tenant = tenant
	q.Test = g.cfg.Environment == apikey.Test
	q.Version = terms.Version
	q.Since = terms.UsedSince
	q.Limits = terms.Limits
	q.MonthStarts = terms.MonthStarts
	q.Cost = 1
	return q
}

// serveQuota serves GET /quota/{tenant}?key=ID&cost=N: the usage of a tenant and, with key, that of
// the key's own limits, and when a request of this cost is admitted. It charges nothing.
func (g *gateway) serveQuota(w http.ResponseWriter, r *http.Request) {
	tenant, err := id.ParseTenant(r.PathValue("tenant"))
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	var key id.Key
	if text := r.URL.Query().Get("key"); text != "" {
		if key, err = id.ParseKey(text); err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
	}
	cost, err := strconv.ParseInt(cmp.Or(r.URL.Query().Get("cost"), "1"), 10, 64)
	if err != nil || cost < 1 || cost > plan.CostMax {
		fail(w, http.StatusBadRequest, fmt.Errorf("cost must be 1 to %d", plan.CostMax))
		return
	}
	terms, used, err := g.peek(r.Context(), tenant, key, cost)
	switch {
	case errors.Is(err, errUnknownTenant):
		fail(w, http.StatusNotFound, err)
		return
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	answer := operate.Quota{
		Environment: g.cfg.Environment.String(),
		Tenant:      tenant,
		Plan:        terms.Plan,
		Limits:      terms.Limits,
		Mode:        g.limits.Mode(),
		Degraded:    used.Degraded,
		Refuses:     used.Degraded && g.cfg.LimitsOnOutage == quotas.Refuse,
	}
	answer.Minute = report(used.Usages[quota.Minute])
	answer.Day = report(used.Usages[quota.Day])
	answer.Month = report(used.Usages[quota.Month])
	answer.KeyMinute = report(used.Usages[quota.KeyMinute])
	answer.KeyDay = report(used.Usages[quota.KeyDay])
	service.WriteJSON(w, http.StatusOK, answer)
}

func fail(w http.ResponseWriter, status int, err error) {
	service.WriteJSON(w, status, map[string]string{"error": err.Error()})
}

const (
	liveTenants    = 100  // in an answer, unless the query has n
	liveTenantsMax = 5000 // about 1 MB
)

// serveLive serves GET /live?n=TENANTS.
func (g *gateway) serveLive(w http.ResponseWriter, r *http.Request) {
	n := liveTenants
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 || n > liveTenantsMax {
			fail(w, http.StatusBadRequest, fmt.Errorf("n must be 0 to %d", liveTenantsMax))
			return
		}
	}
	now := time.Now()
	seen := g.keys.Usage().Activity(now, n)
	answer := operate.Live{
		ID:              g.self,
		Environment:     g.cfg.Environment.String(),
		Mode:            g.limits.Mode(),
		Since:           int64(instant.Of(seen.Since)),
		Version:         service.Version(),
		CertificateEnds: g.admin.Certificates.FirstEnd(),
		Elapsed:         now.Sub(seen.Since).Milliseconds(),
		Requests:        seen.Requests,
		Refused:         seen.Refused,
		Bans:            g.public.Bans(),
		Active:          seen.Active,
		Tenants:         make([]operate.LiveTenant, len(seen.Tenants)),
	}
	answer.Within, answer.Took = g.public.Latencies()
	for i, t := range seen.Tenants {
		var known quota.Verdict
		terms, isKnown := g.keys.Terms(t.Tenant) // a tenant that was deleted since has none
		if isKnown {
			known = g.limits.Known(g.ask(t.Tenant, &terms))
		}
		answer.Tenants[i] = operate.LiveTenant{
			ID:         t.Tenant.String(),
			Plan:       terms.Plan,
			Limits:     terms.Limits,
			Since:      t.Since.Sub(seen.Since).Milliseconds(),
			Requests:   t.Requests,
			Refused:    t.Refused,
			MinuteUsed: known.Usages[quota.Minute].Used,
			DayUsed:    known.Usages[quota.Day].Used,
			MonthUsed:  known.Usages[quota.Month].Used,
		}
	}
	service.WriteJSON(w, http.StatusOK, answer)
}
