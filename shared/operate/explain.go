package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"petgate/shared/api/code"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// Explanation is the output of usage explain; scripts rely on its fields.
type Explanation struct {
	Passes      bool     `json:"passes"`
	Status      int      `json:"status,omitempty"` // of the refusal
	Code        string   `json:"code,omitempty"`   // of the refusal
	Reason      string   `json:"reason,omitempty"`
	Until       string   `json:"until,omitempty"` // a request at this time or later would pass, if none is sent before
	KeyID       string   `json:"keyId,omitempty"`
	TenantID    string   `json:"tenantId,omitempty"`
	Tenant      string   `json:"tenant,omitempty"`
	Plan        string   `json:"plan,omitempty"`
	Environment string   `json:"environment,omitempty"`
	Scopes      []string `json:"scopes,omitempty"`
	Allow       []string `json:"allow,omitempty"`
	From        string   `json:"from,omitempty"`      // the client's address, if it was given
	Operation   string   `json:"operation,omitempty"` // if it was given
	Gateway     string   `json:"gateway,omitempty"`   // that reported the usage
	Mode        string   `json:"mode,omitempty"`      // where that gateway counts: shared, memory or outage
	// Redis is away: the figures are what that gateway knows, and remaining is its share
	Degraded bool `json:"degraded,omitempty"`
	policies[PolicyView]
}

// policies have something of each limit that a call needs. nil: the limit is not set.
type policies[P any] struct {
	Minute    *P `json:"minute,omitempty"`
	Day       *P `json:"day,omitempty"`
	Month     *P `json:"month,omitempty"`
	KeyMinute *P `json:"keyMinute,omitempty"` // the key's own limits
	KeyDay    *P `json:"keyDay,omitempty"`
}

// inOrder returns the members in the order of policyTexts.
func (p policies[P]) inOrder() [5]*P {
	return [...]*P{p.Minute, p.Day, p.Month, p.KeyMinute, p.KeyDay}
}

var policyTexts = [5]struct {
	name, of string // of: what its limit counts
	code     code.Code
}{
	{"Minute", "of the last 60 seconds", code.MinuteQuotaExceeded},
	{"Day", "of this UTC day", code.DayQuotaExceeded},
	{"Month", "of this month", code.MonthQuotaExceeded},
	{"Key's minute", "of this key in the last 60 seconds", code.KeyQuotaExceeded},
	{"Key's day", "of this key in this UTC day", code.KeyQuotaExceeded},
}

// Sheet returns the explanation as names and texts for people. The first row is the verdict.
func (e Explanation) Sheet() [][2]string {
	rows := [][2]string{{"The next call", e.verdict()}}
	if e.TenantID == "" {
		return rows
	}
	tenant := [2]string{"Tenant", e.Tenant + " (" + e.TenantID + "), plan " + e.Plan}
	if e.KeyID == "" {
		rows = append(rows, tenant)
	} else {
		rows = append(rows, [][2]string{
			{"Key", e.KeyID},
			tenant,
			{"Accepted at", "gateways of the " + e.Environment + " environment"},
			{"Accepted from", Anywhere(e.Allow)},
			{"Scopes", strings.Join(e.Scopes, " ")},
		}...)
	}
	left := int64(plan.LimitMax)
	for i, p := range e.inOrder() {
		if p != nil {
			left = min(left, p.Remaining)
			rows = append(rows, [2]string{policyTexts[i].name, fmt.Sprintf("%s of %s used, %s remaining",
				humanize.Comma(p.Used), humanize.Comma(p.Limit), humanize.Comma(p.Remaining))})
		}
	}
	if e.Degraded {
		rows = append(
			rows,
			[2]string{
				"Counted",
				fmt.Sprintf("Redis is away: gateway %s admits %s more of its share", e.Gateway, humanize.Comma(left)),
			},
		)
	} else if e.Mode == "shared" {
		rows = append(rows, [2]string{"Counted", "by all gateways together; reported by " + e.Gateway})
	} else if e.Mode != "" {
		rows = append(rows, [2]string{"Counted", "by gateway " + e.Gateway + " only (" + e.Mode + ")"})
	}
	return rows
}

// verdict says whether the next call passes, and if not, why and until when.
func (e Explanation) verdict() string {
	switch {
	case e.Passes && e.From != "":
		return "passes from " + e.From
	case e.Passes && len(e.Allow) > 0:
		return "passes from " + Anywhere(e.Allow) + " only"
	case e.Passes && e.KeyID == "":
		return "passes, if its key is valid"
	case e.Passes:
		return "passes"
	}
	text := fmt.Sprintf("refused: %d %s, %s", e.Status, e.Code, e.Reason)
	if e.Until != "" {
		text += "; passes from " + e.Until
	}
	return text
}

// PolicyView is how much of one limit is used.
type PolicyView struct {
	Limit     int64  `json:"limit"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
	ResetAt   string `json:"resetAt,omitempty"`
}

// Quota is a gateway's response to GET /quota/TENANT?key=ID&cost=N on its admin port. Times are in
// ms.
type Quota struct {
	Environment string      `json:"environment"` // of the keys that the gateway accepts
	Tenant      id.Tenant   `json:"tenant"`
	Plan        string      `json:"plan"`
	Limits      plan.Limits `json:"limits"`
	Mode        string      `json:"mode"`
	// Redis is away: the use is what is known there, and remaining is that gateway's share
	Degraded bool `json:"degraded"`
	Refuses  bool `json:"refuses"` // all requests, until Redis answers
	policies[PolicyUse]
}

// figures is what a gateway says of the quotas of a call.
type figures struct {
	from keystore.Gateway
	cost int64 // of the call
	Quota
}

// PolicyUse is how much of one limit is used, and when the next request is admitted; 0: at once.
type PolicyUse struct {
	Limit     int64          `json:"limit"`
	Used      int64          `json:"used"`
	Remaining int64          `json:"remaining"`
	ResetAt   instant.Millis `json:"resetAt"`
	RetryAt   instant.Millis `json:"retryAt"`
}

// refusal returns the refusal that ends last, and its place in policyTexts. Without one, its
// RetryAt is 0. Of those that end together, it is the one that quota.Verdict.Violated names: the
// longest of the tenant's, then of the key's.
func (f *figures) refusal() (last PolicyUse, at int) {
	for _, i := range [...]int{2, 1, 0, 4, 3} {
		if p := f.inOrder()[i]; p != nil && p.RetryAt > last.RetryAt {
			last = *p
			at = i
		}
	}
	return last, at
}

// NextCall are the arguments of usage explain. One of Key, Tenant and Token says whose call it is.
type NextCall struct {
	Key       KeyID   `kong:"-" json:"key" help:"The key's ID, key_…"`
	Tenant    string  `kong:"-" json:"tenant" help:"The tenant's ID or name."`
	Token     string  `kong:"-" json:"token" help:"The token of a key."`
	From      Address `json:"from" title:"Client's address" placeholder:"ADDRESS" help:"The client's address, for keys with an allow-list."`
	Operation string  `json:"operation" placeholder:"ID" help:"The operation, as openapi.yaml names it: listPets, createPet."`
}

// Explain explains what would happen to the call. Errors: those of Operator.explain, an
// ArgumentError, a NotFoundError.
func (c NextCall) Explain(ctx context.Context, o Operator) (e Explanation, err error) {
	switch {
	case c.Token != "":
		token := strings.TrimSpace(c.Token)
		if _, malformed := apikey.Parse([]byte(token)); malformed != nil {
			return e.refuse(code.MalformedKey, malformed.Error()), nil
		}
		k, err := o.Store.KeyByToken(ctx, token)
		if errors.Is(err, keystore.ErrNotFound) {
			return e.refuse(code.InvalidKey, "no key has this token"), nil
		} else if err != nil {
			return e, err
		}
		c.Key.Key = k.ID
		fallthrough
	case c.Tenant == "":
		t, k, err := o.Key(ctx, c.Key.Key)
		if err != nil {
			return e, err
		}
		return o.explain(ctx, t, k, c.From.Addr, c.Operation)
	case c.From.IsValid() || c.Operation != "":
		return e, mistaken(Flag("from"), " and ", Flag("operation"),
			" are for a key: its allow-list and its scopes decide")
	}
	t, err := o.Tenant(ctx, c.Tenant)
	if err != nil {
		return e, err
	}
	return o.explainTenant(ctx, t)
}

// explain decides about the next request with a key as a gateway of the key's environment would: by
// package access, then by the quota, then by the operation. It does not count as a request. Without
// a valid address, the allow-list does not matter; without an operation, nor do scopes. Errors: an
// ArgumentError, those of the store, and one if no gateway responds.
func (o Operator) explain(
	ctx context.Context, t Owner, k keystore.Key, from netip.Addr, operation string,
) (e Explanation, err error) {
	ban, err := o.Ban(ctx, k.ID)
	if err != nil {
		return e, err
	}
	v := ViewKey(k, t, ban.Until, o.Now())
	e = Explanation{
		KeyID: v.ID, TenantID: v.TenantID, Tenant: t.Name, Plan: t.Plan, Environment: v.Environment, Scopes: v.Scopes,
		Allow: v.Allow, Operation: operation,
	}
	if from.IsValid() {
		e.From = from.String()
	}
	why := decide(k, t, from, ban.Until, o.Now())
	if why != access.Allowed && why != access.Banned {
		return e.refuse(code.Of(why), refusedBecause(why, k, t)), nil
	}
	f, err := o.figures(ctx, t.ID, k, operation)
	if err != nil && why == access.Allowed {
		return e, err
	}
	if err == nil {
		e = e.byFigures(f)
	}
	if why == access.Banned {
		e = e.byBan(ban, k, t, from, f)
		if err != nil {
			e.Reason += "; no gateway told how much of the quota is used"
		}
		return e, nil
	}
	if operation != "" && e.Passes {
		return e.byOperation(ctx, operation, k, f)
	}
	return e, nil
}

// explainTenant is Explain for any valid key of a tenant: without its bans, allow-list and scopes.
func (o Operator) explainTenant(ctx context.Context, t Owner) (e Explanation, err error) {
	e = Explanation{TenantID: t.ID.String(), Tenant: t.Name, Plan: t.Plan}
	k := keystore.Key{Environment: apikey.Live}
	if why := decide(k, t, netip.Addr{}, 0, o.Now()); why != access.Allowed {
		return e.refuse(code.Of(why), refusedBecause(why, k, t)), nil
	}
	f, err := o.figures(ctx, t.ID, k, "")
	if err != nil {
		return e, err
	}
	e.Environment = f.Environment
	return e.byFigures(f), nil
}

// byOperation decides by the operation and the scopes of the key. The gateway that reported the
// usage names its operations.
func (e Explanation) byOperation(
	ctx context.Context, operation string, k keystore.Key, f figures,
) (Explanation, error) {
	g, err := AskAbout(ctx, f.from)
	if err != nil {
		return e, err
	}
	var known []string
	for _, o := range g.Operations {
		known = append(known, o.ID)
		if o.ID != operation {
			continue
		}
		if o.Gone {
			return e.refuse(code.OperationGone, "the operation has been removed. The request is charged"), nil
		}
		for _, needed := range o.Scopes {
			if !k.Scopes.Has(needed) {
				reason := "the key does not have the scope " + needed + ". The request is charged"
				return e.refuse(code.ScopeMissing, reason), nil
			}
		}
		return e, nil
	}
	return e, wrongArgument("operation",
		fmt.Errorf("there is no operation %q: use %s", operation, strings.Join(known, ", ")))
}

func (e Explanation) refuse(c code.Code, reason string) Explanation {
	e.Passes = false
	e.Status = c.Status
	e.Code = c.Name
	e.Reason = reason
	return e
}

// refusedBecause describes a reason that the records of key and tenant give.
func refusedBecause(why access.Reason, k keystore.Key, t Owner) string {
	switch why {
	case access.Revoked:
		return "revoked at " + k.RevokedAt.String()
	case access.Disabled:
		return "disabled at " + k.DisabledAt.String()
	case access.Expired:
		return "expired at " + k.ExpiresAt.String()
	case access.Replaced:
		return fmt.Sprintf("replaced by %s; ended at %s", k.ReplacedBy, k.GraceEndsAt.String())
	case access.AddressNotAllowed:
		return "the address is not in the allow-list of the key: " + Anywhere(ViewKey(k, t, 0, 0).Allow)
	case access.TenantSuspended:
		return "the tenant is suspended"
	case access.QuotaNotSet:
		return "neither plan " + t.Plan + " nor the tenant sets a limit"
	}
	panic("bug: no text for the reason " + why.String())
}

// byBan refuses because of a ban. A call passes after the ban only if no other reason refuses it
// then.
func (e Explanation) byBan(ban keystore.Ban, k keystore.Key, t Owner, from netip.Addr, f figures) Explanation {
	e = e.refuse(code.KeyBanned, fmt.Sprintf("banned by %s: %s", ban.By, ban.Reason))
	if ban.Notice != "" {
		e.Reason += fmt.Sprintf("; the tenant is told %q", ban.Notice)
	}
	last, _ := f.refusal()
	until := max(ban.Until, last.RetryAt)
	if why := decide(k, t, from, 0, until); why != access.Allowed {
		e.Until = ""
		e.Reason += fmt.Sprintf("; the ban ends at %s, and calls are refused then too: %s",
			roundedUp(ban.Until), refusedBecause(why, k, t))
		return e
	}
	e.Until = roundedUp(until)
	return e
}

// byFigures decides by the quota. If several limits refuse the request, the latest retryAt counts.
func (e Explanation) byFigures(f figures) Explanation {
	if f.Environment != e.Environment {
		return e.refuse(
			code.InvalidKey,
			fmt.Sprintf("this is a %s key, but all gateways that respond accept only %s keys", e.Environment,
				f.Environment),
		)
	}
	e.Gateway = f.from.ID
	e.Mode = f.Mode
	e.Degraded = f.Degraded
	e.Minute = viewPolicy(f.Minute)
	e.Day = viewPolicy(f.Day)
	e.Month = viewPolicy(f.Month)
	e.KeyMinute = viewPolicy(f.KeyMinute)
	e.KeyDay = viewPolicy(f.KeyDay)
	switch last, at := f.refusal(); {
	case f.Refuses:
		e = e.refuse(code.LimitsUnavailable,
			"Redis is away, and gateway "+f.from.ID+" refuses all requests until it answers")
	case last.RetryAt == 0:
		e.Passes = true
	case f.Degraded:
		e = e.refuse(code.LimitsDegraded, "Redis is away, and the share of gateway "+f.from.ID+" is used up")
	default:
		e = e.refuse(
			policyTexts[at].code,
			fmt.Sprintf("%s of %s %s are used%s", humanize.Comma(last.Used), Plural(last.Limit, "request"),
				policyTexts[at].of, Either(f.cost > 1, ", and the operation costs "+humanize.Comma(f.cost), "")),
		)
		if f.cost <= last.Limit {
			e.Until = roundedUp(last.RetryAt)
		}
	}
	return e
}

// viewPolicy returns the view of how much of a limit is used; nil: it is not set.
func viewPolicy(p *PolicyUse) *PolicyView {
	if p == nil {
		return nil
	}
	return &PolicyView{Limit: p.Limit, Used: p.Used, Remaining: p.Remaining, ResetAt: p.ResetAt.String()}
}

// roundedUp formats an instant. It rounds up to the second, because a request before the instant is
// too early.
func roundedUp(at instant.Millis) string { return instant.Millis(at.Seconds() * 1000).String() }

// figures asks the registered gateways, one after the other, for the usage of a tenant and of its
// key. It returns the answer of the first gateway that accepts keys of the key's environment. If
// none accepts such keys, it returns the answer of another gateway.
func (o Operator) figures(ctx context.Context, t id.Tenant, k keystore.Key, operation string) (figures, error) {
	gateways, err := o.Store.Gateways(ctx)
	if err != nil {
		return figures{}, err
	}
	if len(gateways) == 0 {
		return figures{}, errors.New("no gateway is registered, and only gateways know how much of a quota is used")
	}
	problem := errors.New("no gateway told how much of the quota is used, and only gateways know")
	var other figures
	silentLast(gateways)
	for _, g := range gateways {
		switch f, err := askQuota(ctx, g, t, k, operation); {
		case err != nil:
			problem = fmt.Errorf("%w\n  %s: %w", problem, GatewayName(g), err)
		case f.Environment != k.Environment.String():
			other = f
		default:
			return f, nil
		}
	}
	if other.from.ID != "" {
		return other, nil
	}
	return figures{}, problem
}

// silentLast sorts gateways in the order in which to ask them: each silent one may cost the whole
// timeout.
func silentLast(gateways []keystore.Gateway) {
	slices.SortStableFunc(gateways, func(a, b keystore.Gateway) int {
		return cmp.Compare(max(a.Age, keystore.SilentAfter.Milliseconds()),
			max(b.Age, keystore.SilentAfter.Milliseconds()))
	})
}
