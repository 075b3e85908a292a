package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"petgate/shared/api/code"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
)

type usageExplain struct {
	Key       explained `arg:"" optional:"" help:"The key's ID, key_… (default: the key of a token read from standard input)."`
	From      address   `placeholder:"ADDRESS" help:"The client's address, for keys with an allow-list."`
	Operation string    `placeholder:"ID" help:"The operation, as openapi.yaml names it: listPets, createPet."`
}

func (usageExplain) Help() string {
	return `Says whether a request with the key would be admitted, and if not, why and until when. It reads the key from the database
and the tenant's usage from a registered gateway. It does not count as a request.

The exit status is 0 whether the request would pass or not, and 1 if no gateway responds.

Examples:

    # By token, or by the key's ID
    keyadmin usage explain < ci.token
    keyadmin usage explain key_0123456789abcdef

    # May this client add a pet?
    keyadmin usage explain key_0123456789abcdef --from 203.0.113.5 --operation createPet`
}

// explained is the ID of a key. The quota is a tenant's, but a request is made with a key.
type explained keyArgument

func (e *explained) UnmarshalText(text []byte) error {
	err := (*keyArgument)(e).UnmarshalText(text)
	if err != nil {
		err = fmt.Errorf("%w; `keyadmin usage show TENANT` shows the usage of a tenant", err)
	}
	return err
}

// address is a client's address.
type address netip.Addr

func (a *address) UnmarshalText(text []byte) error {
	parsed, err := netip.ParseAddr(string(text))
	if err != nil || parsed.Zone() != "" {
		return fmt.Errorf("%q is not an address: use 203.0.113.5 or 2001:db8::1", text)
	}
	*a = address(parsed.Unmap())
	return nil
}

// explanation is the output of usage explain; scripts rely on its fields.
type explanation struct {
	Passes      bool        `json:"passes"`
	Status      int         `json:"status,omitempty"` // of the refusal
	Code        string      `json:"code,omitempty"`   // of the refusal
	Reason      string      `json:"reason,omitempty"`
	Until       string      `json:"until,omitempty"` // a request at this time or later would pass, if none is sent before
	KeyID       string      `json:"keyId,omitempty"`
	TenantID    string      `json:"tenantId,omitempty"`
	Tenant      string      `json:"tenant,omitempty"`
	Plan        string      `json:"plan,omitempty"`
	Environment string      `json:"environment,omitempty"`
	Scopes      []string    `json:"scopes,omitempty"`
	Allow       []string    `json:"allow,omitempty"`
	From        string      `json:"from,omitempty"`      // the client's address, if it was given
	Operation   string      `json:"operation,omitempty"` // if it was given
	Gateway     string      `json:"gateway,omitempty"`   // that reported the usage
	Mode        string      `json:"mode,omitempty"`      // where that gateway counts: shared, memory or outage
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
	from        keystore.Gateway
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

func (c *usageExplain) Run(ctx context.Context, a *app) error {
	var token []byte
	if id.Key(c.Key).IsZero() {
		var err error
		if token, err = a.token(); err != nil {
			return err
		}
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	e, err := c.explain(ctx, a, token)
	if err != nil {
		return err
	}
	return a.print(e, e.sheet())
}

// explain decides as a gateway of the key's environment would: by the token, then by package access, then by the quota, then by the
// operation.
func (c *usageExplain) explain(ctx context.Context, a *app, token []byte) (e explanation, err error) {
	var t owner
	var k keystore.Key
	if len(token) == 0 {
		t, k, err = a.findKey(ctx, id.Key(c.Key))
	} else if _, malformed := apikey.Parse(token); malformed != nil {
		return e.refuse(code.MalformedKey, malformed.Error()), nil
	} else if k, err = a.store.KeyByToken(ctx, string(token)); errors.Is(err, keystore.ErrNotFound) {
		return e.refuse(code.InvalidKey, "no key has this token"), nil
	} else if err == nil {
		t, err = a.ownerOf(ctx, k)
	}
	if err != nil {
		return e, err
	}
	ban, err := a.ban(ctx, k.ID)
	if err != nil {
		return e, err
	}
	v := viewKey(k, t, ban.Until, a.now())
	from := netip.Addr(c.From)
	e = explanation{
		KeyID: v.ID, TenantID: v.TenantID, Tenant: t.Name, Plan: t.Plan, Environment: v.Environment, Scopes: v.Scopes,
		Allow: v.Allow, Operation: c.Operation,
	}
	if from.IsValid() {
		e.From = from.String()
	}
	why := decideFrom(k, t, from, ban.Until, a.now())
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
		return e.byBan(ban, k, t, from, f), nil
	}
	if c.Operation != "" && e.Passes {
		return e.byOperation(ctx, c.Operation, k, f)
	}
	return e, nil
}

// byOperation decides by the operation and the scopes of the key. The gateway that reported the usage names its operations.
func (e explanation) byOperation(ctx context.Context, operation string, k keystore.Key, f figures) (explanation, error) {
	g, err := askAbout(ctx, f.from)
	if err != nil {
		return e, err
	}
	var known []string
	for _, o := range g.Operations {
		known = append(known, o.ID)
		if o.ID != operation {
			continue
		}
		needed, err := apikey.ParseScopes(o.Scopes)
		if err != nil {
			return e, err
		}
		switch {
		case o.Gone:
			return e.refuse(code.OperationGone, "the operation has been removed. The request is charged"), nil
		case !k.Scopes.Has(needed):
			return e.refuse(code.ScopeMissing, "the key does not have the scope "+needed.String()+". The request is charged"), nil
		}
		return e, nil
	}
	return e, usageErrorf("there is no operation %q%s; all operations: %s", operation, didYouMean(operation, known), strings.Join(known, ", "))
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
	case access.AddressNotAllowed:
		return "the address is not in the allow-list of the key: " + anywhere(viewKey(k, t, 0, 0).Allow)
	case access.TenantSuspended:
		return "the tenant is suspended"
	case access.QuotaNotSet:
		return "neither plan " + t.Plan + " nor the tenant sets both limits"
	}
	panic("bug: no text for the reason " + why.String())
}

// byBan refuses because of a ban. A call passes after the ban only if no other reason refuses it then.
func (e explanation) byBan(ban keystore.Ban, k keystore.Key, t owner, from netip.Addr, f figures) explanation {
	e = e.refuse(code.KeyBanned, fmt.Sprintf("banned by %s: %s", ban.By, ban.Reason))
	if ban.Notice != "" {
		e.Reason += fmt.Sprintf("; the tenant is told %q", ban.Notice)
	}
	until := max(ban.Until, f.Minute.RetryAt, f.Day.RetryAt)
	if why := decideFrom(k, t, from, 0, until); why != access.Allowed {
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

// roundedUp formats an instant. It rounds up to the second, because a request before the instant is too early.
func roundedUp(at instant.Millis) string { return instant.Millis(at.Seconds() * 1000).String() }

func (e explanation) sheet() table {
	verdict := "passes"
	if e.Passes && e.From != "" {
		verdict += " from " + e.From
	} else if e.Passes && len(e.Allow) > 0 {
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
		{"Accepted at", "gateways of the " + e.Environment + " environment"},
		{"Accepted from", anywhere(e.Allow)},
		{"Scopes", strings.Join(e.Scopes, " ")},
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
	figuresBytesMax = 1 << 20
)

// figures asks the registered gateways, one after the other, for a tenant's usage. It returns the answer of the first gateway that
// accepts keys of the environment. If there is none, it returns the answer of another gateway.
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
	// Silent gateways are asked last, because each of them may cost the whole timeout.
	slices.SortStableFunc(gateways, func(a, b keystore.Gateway) int {
		return cmp.Compare(max(a.Age, keystore.SilentAfter.Milliseconds()), max(b.Age, keystore.SilentAfter.Milliseconds()))
	})
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
	f := figures{gateway: g.ID, from: g}
	return f, askAdmin(ctx, g, "/quota/"+t.String(), &f)
}

// adminStatus is an answer of an admin port that is not the one asked for.
type adminStatus struct {
	url, status string
	code        int
}

func (s adminStatus) Error() string { return fmt.Sprintf("GET %s: %s", s.url, s.status) }

// askAdmin reads JSON from a gateway's admin port. path may have a query. A response of 503 has a body too.
func askAdmin(ctx context.Context, g keystore.Gateway, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, figuresTimeout)
	defer cancel()
	path, query, _ := strings.Cut(path, "?")
	scheme, host, isURL := strings.Cut(g.AdminAddress, "://") // https://… if the admin port uses TLS
	if !isURL {
		scheme, host = "http", g.AdminAddress
	}
	ask := url.URL{Scheme: scheme, Host: host, Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ask.String(), nil)
	if err != nil {
		return err
	}
	// Not http.DefaultClient: it would use a proxy from the environment, which cannot reach the private admin port.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: adminTLS(ctx)}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && path != readyPath {
		return adminStatus{ask.String(), response.Status, response.StatusCode}
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, figuresBytesMax)).Decode(answer); err != nil {
		return fmt.Errorf("GET %s: %w", ask.String(), err)
	}
	return nil
}
