package app

import (
	"context"
	"errors"
	"net/http"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/service"
)

// tenants and peeker are the sources of the quota report.
type (
	tenants interface {
		Terms(t id.Tenant) (directory.Terms, bool)
	}
	peeker interface {
		Peek(ctx context.Context, a quotas.Request) (quota.Verdict, error)
		Mode() string
	}
)

// usage is a tenant's use of one policy, as reported.
type usage struct {
	Limit     int64          `json:"limit"`
	Used      int64          `json:"used"`
	Remaining int64          `json:"remaining"`
	ResetAt   instant.Millis `json:"resetAt"`
	RetryAt   instant.Millis `json:"retryAt"` // when the next request is admitted; 0: at once
}

func report(u quota.Usage) usage {
	return usage{Limit: u.Limit, Used: u.Used, Remaining: u.Remaining(), ResetAt: u.ResetAt, RetryAt: u.RetryAt}
}

// peeked is a tenant's use of its limits.
type peeked struct {
	plan    string
	limits  plan.Limits
	verdict quota.Verdict
}

// unknownTenantError is a tenant that this gateway does not know.
type unknownTenantError struct{ tenant id.Tenant }

func (u unknownTenantError) Error() string {
	return "this gateway does not know the tenant " + u.tenant.String()
}

// peek reads how much of its limits a tenant has used. It charges nothing.
func peek(ctx context.Context, tenants tenants, peeker peeker, tenant id.Tenant) (p peeked, err error) {
	now, ok := tenants.Terms(tenant)
	if !ok {
		return p, unknownTenantError{tenant}
	}
	p.plan, p.limits = now.Plan, now.Limits
	p.verdict, err = peeker.Peek(ctx, quotas.Request{Tenant: tenant, Since: now.UsedSince, Version: now.Version, Limits: now.Limits})
	return p, err
}

// serveQuota serves GET /quota/{tenant}: the usage of a tenant. It charges nothing.
func serveQuota(environment string, tenants tenants, peeker peeker) http.HandlerFunc {
	type failure struct {
		Error string `json:"error"`
	}
	return func(w http.ResponseWriter, r *http.Request) {
		tenant, err := id.ParseTenant(r.PathValue("tenant"))
		if err != nil {
			service.WriteJSON(w, http.StatusBadRequest, failure{err.Error()})
			return
		}
		p, err := peek(r.Context(), tenants, peeker, tenant)
		if errors.As(err, new(unknownTenantError)) {
			service.WriteJSON(w, http.StatusNotFound, failure{err.Error()})
			return
		}
		if err != nil {
			service.WriteJSON(w, http.StatusServiceUnavailable, failure{err.Error()})
			return
		}
		service.WriteJSON(w, http.StatusOK, struct {
			Environment string      `json:"environment"` // of the keys that are accepted
			Tenant      id.Tenant   `json:"tenant"`
			Plan        string      `json:"plan"`
			Limits      plan.Limits `json:"limits"`
			Mode        string      `json:"mode"`
			Minute      usage       `json:"minute"`
			Day         usage       `json:"day"`
		}{environment, tenant, p.plan, p.limits, peeker.Mode(), report(p.verdict.Minute), report(p.verdict.Day)})
	}
}
