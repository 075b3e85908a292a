package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"petgate/shared/api/code"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

type usageExplain struct{}

func (usageExplain) Help() string {
	return `Says whether a request with the token would be admitted, and if not, why and until when. It reads the key from the
database and the tenant's usage from a registered gateway. It does not count as a request.

The exit status is 0 whether the request would pass or not, and 1 if no gateway responds.

Examples:

    keyadmin usage explain < ci.token`
}

// explanation is the output of usage explain; scripts rely on its fields.
type explanation struct {
	Passes      bool        `json:"passes"`
	Status      int         `json:"status,omitempty"` // of the refusal
	Code        string      `json:"code,omitempty"`   // of the refusal
	Reason      string      `json:"reason,omitempty"`
	Until       string      `json:"until,omitempty"` // from this time on a request would pass, if none is sent before
	KeyID       string      `json:"keyId,omitempty"`
	TenantID    string      `json:"tenantId,omitempty"`
	Tenant      string      `json:"tenant,omitempty"`
	Plan        string      `json:"plan,omitempty"`
	Environment string      `json:"environment,omitempty"`
	Scopes      []string    `json:"scopes,omitempty"`
	Allow       []string    `json:"allow,omitempty"`
	Gateway     string      `json:"gateway,omitempty"` // that reported the usage
	Mode        string      `json:"mode,omitempty"`    // where that gateway counts: shared, memory or outage
	Minute      *policyView `json:"minute,omitempty"`
	Day         *policyView `json:"day,omitempty"`
}

type policyView struct {
	Limit     int64  `json:"limit"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	ResetAt   string `json:"resetAt,omitempty"`
}

// figures is a gateway's response to GET /quota/TENANT on its admin port. Times are in ms; a retryAt of 0 means at once.
type figures struct {
	gateway     string
	Environment string       `json:"environment"` // of the keys that the gateway accepts
	Mode        string       `json:"mode"`
	Minute      policyAnswer `json:"minute"`
	Day         policyAnswer `json:"day"`
}

type policyAnswer struct {
	Limit     int64          `json:"limit"`
	Used      int64          `json:"used"`
	Remaining int64          `json:"remaining"`
	ResetAt   instant.Millis `json:"resetAt"`
	RetryAt   instant.Millis `json:"retryAt"`
}

func (p policyAnswer) view() *policyView {
	return &policyView{Limit: p.Limit, Used: p.Used, Remaining: p.Remaining, ResetAt: p.ResetAt.String()}
}

func (usageExplain) Run(ctx context.Context, a *app) error {
	token, err := a.token()
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	e, err := a.explain(ctx, token)
	if err != nil {
		return err
	}
	return a.print(e, e.sheet())
}

// explain decides as a gateway of the key's environment would: by the token, then by package access, then by the quota.
func (a *app) explain(ctx context.Context, token []byte) (explanation, error) {
	var e explanation
	if _, err := apikey.Parse(token); err != nil {
		return e.refuse(code.MalformedKey, err.Error()), nil
	}
	k, err := a.store.KeyByToken(ctx, string(token))
	if errors.Is(err, keystore.ErrNotFound) {
		return e.refuse(code.InvalidKey, "no key has this token"), nil
	}
	if err != nil {
		return e, err
	}
	t, err := a.ownerOf(ctx, k)
	if err != nil {
		return e, err
	}
	ban, err := a.ban(ctx, k.ID)
	if err != nil {
		return e, err
	}
	v := viewKey(k, t, ban.Until, a.now())
	e = explanation{
		KeyID: v.ID, TenantID: v.TenantID, Tenant: t.Name, Plan: t.Plan, Environment: v.Environment, Scopes: v.Scopes,
		Allow: v.Allow,
	}
	why := decide(k, t, ban.Until, a.now())
	if why != access.Allowed && why != access.Banned {
		return e.refuse(code.Of(why), refusedBecause(why, k, t)), nil
	}
	f, err := a.figures(ctx, t.ID, v.Environment)
	if err != nil && why == access.Allowed {
		return e, err
	}
	if err == nil {
		e = e.byFigures(f)
	}
	if why == access.Banned {
		e = e.byBan(ban, k, t, f)
	}
	return e, nil
}

func (e explanation) refuse(c code.Code, reason string) explanation {
	e.Passes, e.Status, e.Code, e.Reason = false, c.Status, c.Name, reason
	return e
}

// refusedBecause describes a reason that the records of key and tenant give.
func refusedBecause(why access.Reason, k keystore.Key, t owner) string {
	switch why {
	case access.Revoked:
		return "revoked at " + k.RevokedAt.String()
	case access.Expired:
		return "expired at " + k.ExpiresAt.String()
	case access.Replaced:
		return fmt.Sprintf("replaced by %s; ended at %s", k.ReplacedBy, k.GraceEndsAt.String())
	case access.TenantSuspended:
		return "the tenant is suspended"
	case access.QuotaNotSet:
		return "neither plan " + t.Plan + " nor the tenant sets both limits"
	}
	panic("bug: no text for the reason " + why.String())
}

// byBan refuses because of a ban. A call passes after the ban only if no other reason refuses it then.
func (e explanation) byBan(ban keystore.Ban, k keystore.Key, t owner, f figures) explanation {
	e = e.refuse(code.KeyBanned, fmt.Sprintf("banned by %s: %s", ban.By, ban.Reason))
	until := max(ban.Until, f.Minute.RetryAt, f.Day.RetryAt)
	if why := decide(k, t, 0, until); why != access.Allowed {
		e.Until = ""
		e.Reason += fmt.Sprintf("; the ban ends at %s, and calls are refused then too: %s",
			roundedUp(ban.Until), refusedBecause(why, k, t))
		return e
	}
	e.Until = roundedUp(until)
	return e
}

// byFigures decides by the quota. If both limits refuse the request, the later retryAt counts.
func (e explanation) byFigures(f figures) explanation {
	if f.Environment != e.Environment {
		return e.refuse(code.InvalidKey,
			fmt.Sprintf("this is a %s key, but all gateways that respond accept only %s keys", e.Environment, f.Environment))
	}
	e.Gateway, e.Mode, e.Minute, e.Day = f.gateway, f.Mode, f.Minute.view(), f.Day.view()
	switch retryAt := max(f.Minute.RetryAt, f.Day.RetryAt); {
	case retryAt == 0:
		e.Passes = true
	case retryAt == f.Day.RetryAt:
		e = e.refuse(code.DayQuotaExceeded, exhausted(f.Day, "of this UTC day"))
		e.Until = roundedUp(retryAt)
	default:
		e = e.refuse(code.MinuteQuotaExceeded, exhausted(f.Minute, "of the last 60 seconds"))
		e.Until = roundedUp(retryAt)
	}
	return e
}

func exhausted(p policyAnswer, of string) string {
	return fmt.Sprintf("%s of %s requests %s are used", count(p.Used), count(p.Limit), of)
}

// roundedUp formats at, rounded up to the second: a request before at is too early.
func roundedUp(at instant.Millis) string { return instant.Millis(at.Seconds() * 1000).String() }

func (e explanation) sheet() table {
	verdict := "passes"
	if e.Passes && len(e.Allow) > 0 {
		verdict += " from " + anywhere(e.Allow) + " only"
	} else if !e.Passes {
		verdict = fmt.Sprintf("refused: %d %s, %s", e.Status, e.Code, e.Reason)
		if e.Until != "" {
			verdict += "; passes from " + e.Until
		}
	}
	t := table{rows: [][]string{{"The next call", verdict}}}
	if e.KeyID == "" {
		return t
	}
	t.rows = append(t.rows, [][]string{
		{"Key", e.KeyID},
		{"Tenant", e.Tenant + " (" + e.TenantID + "), plan " + e.Plan},
		{"Only at", "gateways of the " + e.Environment + " environment"},
		{"Only from", anywhere(e.Allow)},
	}...)
	for _, p := range []struct {
		name string
		view *policyView
	}{{"Minute", e.Minute}, {"Day", e.Day}} {
		if p.view != nil {
			t.rows = append(t.rows, []string{p.name, fmt.Sprintf("%s of %s used, %s remaining",
				count(p.view.Used), count(p.view.Limit), count(p.view.Remaining))})
		}
	}
	if e.Mode == "shared" {
		t.rows = append(t.rows, []string{"Counted", "by all gateways together; reported by " + e.Gateway})
	} else if e.Mode != "" {
		t.rows = append(t.rows, []string{"Counted", "by gateway " + e.Gateway + " only (" + e.Mode + ")"})
	}
	return t
}

const (
	figuresTimeout  = 2 * time.Second // of one gateway
	figuresBytesMax = 1 << 16
)

// figures asks the registered gateways, one after the other, for a tenant's usage. It returns that of the first gateway that
// accepts keys of the environment, else of any.
func (a *app) figures(ctx context.Context, t id.Tenant, environment string) (figures, error) {
	gateways, err := a.store.Gateways(ctx)
	if err != nil {
		return figures{}, err
	}
	if len(gateways) == 0 {
		return figures{}, errors.New("no gateway is registered, and only gateways know how much of a quota is used")
	}
	problem := errors.New("no gateway responded, and only gateways know how much of a quota is used")
	var other figures
	for _, g := range gateways {
		switch f, err := askGateway(ctx, g, t); {
		case err != nil:
			problem = fmt.Errorf("%w\n  %s: %w", problem, gatewayName(g), err)
		case f.Environment == environment:
			return f, nil
		default:
			other = f
		}
	}
	if other.gateway != "" {
		return other, nil
	}
	return figures{}, problem
}

func askGateway(ctx context.Context, g keystore.Gateway, t id.Tenant) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, figuresTimeout)
	defer cancel()
	ask := url.URL{Scheme: "http", Host: g.AdminAddress, Path: "/quota/" + t.String()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ask.String(), nil)
	if err != nil {
		return figures{}, err
	}
	// Not http.DefaultClient: it would use a proxy from the environment, which cannot reach the private admin port.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return figures{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return figures{}, fmt.Errorf("GET %s: %s", ask.String(), response.Status)
	}
	f := figures{gateway: g.ID}
	if err := json.NewDecoder(io.LimitReader(response.Body, figuresBytesMax)).Decode(&f); err != nil {
		return figures{}, fmt.Errorf("GET %s: %w", ask.String(), err)
	}
	return f, nil
}
