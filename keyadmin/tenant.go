package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/service"
)

type tenantCommands struct {
	Create   tenantCreate   `cmd:"" help:"Create a tenant."`
	List     tenantList     `cmd:"" help:"List all tenants."`
	Show     tenantShow     `cmd:"" help:"Show one tenant."`
	Suspend  tenantSuspend  `cmd:"" help:"Refuse all requests of a tenant until it is resumed."`
	Resume   tenantResume   `cmd:"" help:"End a suspension."`
	SetPlan  tenantSetPlan  `cmd:"" help:"Put a tenant on another plan."`
	SetQuota tenantSetQuota `cmd:"" help:"Set limits for one tenant, or remove them."`
}

// tenantView is a tenant as JSON; scripts rely on its fields.
type tenantView struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Plan      string      `json:"plan"`
	Limits    plan.Limits `json:"limits"`   // in force; 0: not set, so every request is refused
	Override  plan.Limits `json:"override"` // the tenant's own; 0: the plan's limit applies
	Suspended bool        `json:"suspended"`
	CreatedAt string      `json:"createdAt"`
}

func viewTenant(t keystore.Tenant, plans map[string]plan.Limits) tenantView {
	return tenantView{
		ID: t.ID.String(), Name: t.Name, Plan: t.Plan, Suspended: t.Suspended, Override: t.Override,
		Limits: plan.Effective(plans[t.Plan], t.Override), CreatedAt: t.CreatedAt.String(),
	}
}

func (v tenantView) status() string {
	switch {
	case v.Suspended:
		return "suspended"
	case !v.Limits.IsSet():
		return "no quota"
	}
	return "active"
}

func limitText(limit, override int64) string {
	switch {
	case limit == 0:
		return "not set"
	case override != 0:
		return count(limit) + " (own)"
	}
	return count(limit)
}

func tenantTable(views []tenantView) table {
	t := table{
		head:  []string{"ID", "NAME", "PLAN", "PER MINUTE", "PER DAY", "STATUS", "CREATED"},
		spare: []string{"CREATED", "ID", "PER DAY"},
		none:  "There are no tenants. The first: `keyadmin tenant create NAME`",
	}
	for _, v := range views {
		t.rows = append(t.rows, []string{
			v.ID, v.Name, v.Plan, limitText(v.Limits.Minute, v.Override.Minute), limitText(v.Limits.Day, v.Override.Day),
			v.status(), v.CreatedAt,
		})
	}
	return t
}

// planLimits reads the limits of all plans by name.
func (a *app) planLimits(ctx context.Context) (map[string]plan.Limits, error) {
	plans, err := a.store.Plans(ctx)
	if err != nil {
		return nil, err
	}
	limits := make(map[string]plan.Limits, len(plans))
	for _, p := range plans {
		limits[p.Name] = p.Limits
	}
	return limits, nil
}

// perMinuteAndDay describes limits: `60 requests per minute, 1,000 per day`.
func perMinuteAndDay(l plan.Limits) string {
	if !l.IsSet() {
		return "it has no limits: all requests of the tenant are refused"
	}
	return count(l.Minute) + " requests per minute, " + count(l.Day) + " per day"
}

// ownLimits describes the limits of one tenant: `200 requests per minute, 5,000 requests per day`. Empty: it has none.
func ownLimits(l plan.Limits) string {
	var parts []string
	if l.Minute != 0 {
		parts = append(parts, count(l.Minute)+" requests per minute")
	}
	if l.Day != 0 {
		parts = append(parts, count(l.Day)+" requests per day")
	}
	return strings.Join(parts, ", ")
}

// movedLimits describes a change of limits: `60 → 120 requests per minute`. Limits that have not changed are left out.
func movedLimits(was, is plan.Limits) string {
	var parts []string
	for _, l := range []struct {
		was, is int64
		per     string
	}{{was.Minute, is.Minute, "minute"}, {was.Day, is.Day, "day"}} {
		if l.was != l.is {
			parts = append(parts, fmt.Sprintf("%s → %s requests per %s", limitText(l.was, 0), limitText(l.is, 0), l.per))
		}
	}
	return strings.Join(parts, ", ")
}

// tenantChanged is the result of a change of a tenant, unless it failed.
func (a *app) tenantChanged(ctx context.Context, t keystore.Tenant, change keystore.Change, done string, err error) (outcome, error) {
	if err != nil {
		return outcome{}, err
	}
	plans, err := a.planLimits(ctx)
	if err != nil {
		return outcome{}, err
	}
	view := viewTenant(t, plans)
	return outcome{change: change, view: view, done: done, after: func() { a.noteQuota(view) }}, nil
}

func (a *app) noteQuota(v tenantView) {
	if v.Limits.IsSet() || v.Suspended {
		return
	}
	why := "plan " + v.Plan + " has no limits"
	switch {
	case v.Limits.Minute != 0:
		why = "its limit per day is missing"
	case v.Limits.Day != 0:
		why = "its limit per minute is missing"
	}
	a.warn("Tenant %s has no quota: %s. Its requests are refused with 403 quota_not_set.\n"+
		"Set its limits: keyadmin tenant set-quota %s%s", v.Name, why, shellWord(v.Name), missingLimits(v.Limits))
}

// missingLimits returns the flags for the limits that are not set: ` --minute N --day N`.
func missingLimits(l plan.Limits) (flags string) {
	if l.Minute == 0 {
		flags += " --minute N"
	}
	if l.Day == 0 {
		flags += " --day N"
	}
	return flags
}

type tenantCreate struct {
	Name tenantName `arg:"" help:"The tenant's name; must be unique."`
	Plan planName   `default:"free" placeholder:"PLAN" help:"Its plan."`
	ownLimitFlags
	ifNotExists
	waiting
}

// ownLimitFlags are limits of one tenant.
type ownLimitFlags struct {
	Minute limit `placeholder:"N" help:"Its own limit of requests in any 60 seconds, instead of the plan's."`
	Day    limit `placeholder:"N" help:"Its own limit of requests in a UTC day, instead of the plan's."`
}

func (f ownLimitFlags) limits() plan.Limits { return limitFlags(f).limits() }

func (tenantCreate) Help() string {
	return `Prints the new tenant's ID.

Examples:

    # A tenant on the free plan
    keyadmin tenant create acme

    # A tenant with quotas agreed individually
    keyadmin tenant create globex --plan enterprise --minute 5000 --day 2000000`
}

func (c *tenantCreate) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	spec := keystore.TenantSpec{
		Name: string(c.Name), Plan: string(c.Plan), Override: c.limits(),
	}
	return a.carryOut(ctx, operation{
		wait: c.Wait, laggard: "may not know this tenant yet",
		change: func() (outcome, error) {
			t, change, err := a.store.CreateTenant(ctx, spec)
			done := "Created tenant " + spec.Name + " on plan " + spec.Plan + ". Its first key: keyadmin key create " + shellWord(spec.Name)
			if c.IfNotExists && errors.Is(err, keystore.ErrExists) {
				done = "Tenant " + spec.Name + " already exists. It was not changed."
				if t, err = a.store.Tenant(ctx, spec.Name); err == nil {
					change, err = a.store.LastEvent(ctx)
				}
			}
			if err != nil {
				return outcome{}, a.explainPlan(ctx, spec.Plan, err)
			}
			r, err := a.tenantChanged(ctx, t, change, done, nil)
			r.table = table{rows: [][]string{{t.ID.String()}}}
			return r, err
		},
	})
}

type tenantList struct{}

func (tenantList) Help() string {
	return `Limits marked (own) are set for the tenant; the others come from its plan.

Examples:

    # All tenants
    keyadmin tenant list

    # The IDs of suspended tenants
    keyadmin tenant list -o json | jq -r '.[] | select(.suspended) | .id'`
}

func (tenantList) Run(ctx context.Context, a *app) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	tenants, err := a.store.Tenants(ctx)
	if err != nil {
		return err
	}
	plans, err := a.planLimits(ctx)
	if err != nil {
		return err
	}
	views := make([]tenantView, 0, len(tenants))
	for _, t := range tenants {
		views = append(views, viewTenant(t, plans))
	}
	return a.print(views, tenantTable(views))
}

type tenantShow struct {
	Tenant string `arg:"" help:"ID or name."`
}

func (tenantShow) Help() string {
	return `Examples:

    # By name, or by ID
    keyadmin tenant show acme
    keyadmin tenant show ten_0123456789abcdef`
}

func (c *tenantShow) Run(ctx context.Context, a *app) error {
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	plans, err := a.planLimits(ctx)
	if err != nil {
		return err
	}
	v := viewTenant(t, plans)
	return a.print(v, table{rows: [][]string{
		{"ID", v.ID},
		{"Name", v.Name},
		{"Plan", v.Plan},
		{"Requests per minute", limitText(v.Limits.Minute, v.Override.Minute)},
		{"Requests per day", limitText(v.Limits.Day, v.Override.Day)},
		{"Status", v.status()},
		{"Created", v.CreatedAt},
	}})
}

type tenantSuspend struct {
	Tenant string `arg:"" help:"ID or name."`
	asking
	waiting
}

func (tenantSuspend) Help() string {
	return `Requests with the tenant's keys are refused with 403 tenant_suspended until it is resumed.

Examples:

    # Stop a tenant that does not pay
    keyadmin tenant suspend acme

    # In a script, waiting up to 20 seconds for the gateways
    keyadmin tenant suspend acme --yes --wait 20s`
}

func (c *tenantSuspend) Run(ctx context.Context, a *app) error {
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		question: fmt.Sprintf("Suspend tenant %s? All its keys will be refused.", t.Name),
		yes:      c.Yes, wait: c.Wait, laggard: "may still serve this tenant",
		change: func() (outcome, error) {
			suspended, change, err := a.store.Suspend(ctx, t.ID)
			return a.tenantChanged(ctx, suspended, change,
				either(!t.Suspended, "Suspended tenant "+t.Name+".", "Tenant "+t.Name+" was already suspended."), err)
		},
	})
}

type tenantResume struct {
	Tenant string `arg:"" help:"ID or name."`
	waiting
}

func (tenantResume) Help() string {
	return `Examples:

    keyadmin tenant resume acme`
}

func (c *tenantResume) Run(ctx context.Context, a *app) error {
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{
		wait: c.Wait, laggard: "may still refuse this tenant",
		change: func() (outcome, error) {
			resumed, change, err := a.store.Resume(ctx, t.ID)
			return a.tenantChanged(ctx, resumed, change,
				either(t.Suspended, "Resumed tenant "+t.Name+".", "Tenant "+t.Name+" was not suspended."), err)
		},
	})
}

type tenantSetPlan struct {
	Tenant string   `arg:"" help:"ID or name."`
	Plan   planName `arg:"" help:"The plan's name."`
	ownLimitFlags
	asking
	waiting
}

func (tenantSetPlan) Help() string {
	return `The new limits hold from the next request on. Usage is kept, and so are limits set for this tenant only. If the tenant
would have no quota afterwards, all its requests would be refused: keyadmin asks first.

Examples:

    # An upgrade
    keyadmin tenant set-plan acme pro

    # To a plan without limits, with quotas agreed individually
    keyadmin tenant set-plan acme enterprise --minute 5000 --day 2000000`
}

func (c *tenantSetPlan) Run(ctx context.Context, a *app) error {
	to := string(c.Plan)
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	plans, err := a.planLimits(ctx)
	if err != nil {
		return err
	}
	question := ""
	was := plan.Effective(plans[t.Plan], t.Override)
	is := plan.Effective(plans[to], plan.Effective(t.Override, c.limits()))
	if _, known := plans[to]; known && was.IsSet() && !is.IsSet() {
		question = fmt.Sprintf("Move tenant %s to plan %s, which has no limits? Without limits of its own (add%s), "+
			"all its requests will be refused.", t.Name, to, missingLimits(is))
	}
	return a.carryOut(ctx, operation{
		question: question, yes: c.Yes,
		wait: c.Wait, laggard: "may still apply the old plan",
		change: func() (outcome, error) {
			moved, change, err := a.store.SetTerms(ctx, t.ID, to, c.limits())
			if err != nil {
				return outcome{}, a.explainPlan(ctx, to, err)
			}
			done := "Tenant " + t.Name + " moved from plan " + t.Plan + " to " + to + "."
			switch changed := movedLimits(was, is); {
			case moved == t:
				done = "Tenant " + t.Name + " was already on plan " + to + "."
			case moved.Plan == t.Plan:
				done = "Changed the limits of tenant " + t.Name + ": " + changed + "."
			case changed != "":
				done = "Tenant " + t.Name + " moved from plan " + t.Plan + " to " + to + ": " + changed + "."
			}
			if own := ownLimits(t.Override); own != "" && c.limits() == (plan.Limits{}) && moved.Plan != t.Plan {
				done += " Its own limits stay: " + own + ".\nTo clear them: keyadmin tenant set-quota " + shellWord(t.Name) + " --clear"
			}
			return a.tenantChanged(ctx, moved, change, done, nil)
		},
	})
}

type tenantSetQuota struct {
	Tenant string `arg:"" help:"ID or name."`
	limitFlags
	Clear bool `help:"Remove both: the plan's limits apply again."`
	asking
	waiting
}

func (tenantSetQuota) Help() string {
	return `A limit that is not given stays as it is. Usage is kept.

Examples:

    # Quotas agreed individually
    keyadmin tenant set-quota globex --minute 5000 --day 2000000

    # Back to the limits of its plan
    keyadmin tenant set-quota globex --clear`
}

// BadSettings checks that there is something to change, and that the flags do not contradict each other.
func (c *tenantSetQuota) BadSettings() service.BadSettings {
	var bad service.BadSettings
	given := c.Minute != 0 || c.Day != 0
	bad.Require(!c.Clear || !given, "", "--clear removes both limits: do not combine it with --minute or --day")
	bad.Require(c.Clear || given, "", "give --minute, --day or both, or --clear to remove them")
	return bad
}

func (c *tenantSetQuota) Run(ctx context.Context, a *app) error {
	t, err := a.openTenant(ctx, c.Tenant)
	if err != nil {
		return err
	}
	plans, err := a.planLimits(ctx)
	if err != nil {
		return err
	}
	question := ""
	if c.Clear {
		question = fmt.Sprintf("Remove the limits of tenant %s, so that those of plan %s apply (%s)?", t.Name, t.Plan, perMinuteAndDay(plans[t.Plan]))
	}
	return a.carryOut(ctx, operation{
		question: question, yes: c.Yes,
		wait: c.Wait, laggard: "may still apply the old limits",
		change: func() (outcome, error) {
			var changed keystore.Tenant
			var change keystore.Change
			var err error
			if c.Clear {
				changed, change, err = a.store.ClearQuota(ctx, t.ID)
			} else {
				changed, change, err = a.store.SetQuota(ctx, t.ID, c.limits())
			}
			moved := movedLimits(plan.Effective(plans[t.Plan], t.Override), plan.Effective(plans[t.Plan], changed.Override))
			done := "Changed the limits of tenant " + t.Name + ": " + moved + "."
			switch {
			case changed.Override == t.Override:
				done = "Tenant " + t.Name + " already had these limits."
			case moved == "":
				done = "Changed the limits of tenant " + t.Name + ". They are the same as its plan's."
			}
			return a.tenantChanged(ctx, changed, change, done, err)
		},
	})
}
