package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// TenantView is a tenant as JSON; scripts rely on its fields.
type TenantView struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Plan     string     `json:"plan"`
	Limits   LimitsView `json:"limits"`   // in force; all null: every request is refused
	Override LimitsView `json:"override"` // the tenant's own; null: the plan's limit applies
	// MonthStarts is the day of the UTC month on which the tenant's month begins.
	MonthStarts uint8  `json:"monthStarts"`
	Suspended   bool   `json:"suspended"`
	CreatedAt   string `json:"createdAt"`

	Owner Owner `json:"-"` // what the view is of
}

// View returns the view of the tenant.
func (t Owner) View() TenantView {
	return TenantView{
		ID: t.ID.String(), Name: t.Name, Plan: t.Plan, Suspended: t.Suspended, Override: ViewLimits(t.Override), Limits: ViewLimits(t.Limits),
		MonthStarts: max(1, t.MonthStarts), CreatedAt: t.CreatedAt.String(), Owner: t,
	}
}

// ViewTenants returns the views of a list of tenants.
func (o Operator) ViewTenants(ctx context.Context, tenants iter.Seq2[keystore.Tenant, error]) iter.Seq2[TenantView, error] {
	return func(yield func(TenantView, error) bool) {
		plans, err := o.Plans(ctx)
		if err != nil {
			yield(TenantView{}, err)
			return
		}
		for t, err := range tenants {
			if !yield(plans.Owner(t).View(), err) {
				return
			}
		}
	}
}

// LimitTexts describes its limits, one text for each policy.
func (v TenantView) LimitTexts() []string { return LimitTexts(v.Owner.Limits, v.Owner.Override) }

// Status is a short text for what happens to the tenant's requests.
func (v TenantView) Status() string {
	switch {
	case v.Suspended:
		return "suspended"
	case !v.Owner.Limits.IsSet():
		return "no quota"
	}
	return "active"
}

// NoQuota says why all requests of the tenant are refused, if it has no limit. Empty: it has one, or it is suspended.
func (v TenantView) NoQuota() string {
	if v.Owner.Limits.IsSet() || v.Suspended {
		return ""
	}
	return fmt.Sprintf("Tenant %s has no quota: plan %s has no limits. Its requests are refused with 403 quota_not_set.", v.Name, v.Plan)
}

// TenantRef names a tenant.
type TenantRef struct {
	Tenant string `arg:"" json:"tenant" required:"" help:"ID or name."`
}

// prepare prepares a change of the tenant.
func (a TenantRef) prepare(ctx context.Context, o Operator, change func(keystore.Tenant) Operation) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	if err != nil {
		return Operation{}, err
	}
	return change(t), nil
}

// OwnLimits are limits of one tenant.
type OwnLimits struct {
	Minute Limit `json:"minute" placeholder:"N" help:"Its own limit of requests in any 60 seconds, instead of the plan's."`
	Day    Limit `json:"day" placeholder:"N" help:"Its own limit of requests in a UTC day, instead of the plan's."`
	Month  Limit `json:"month" placeholder:"N" help:"Its own limit of requests in a month, instead of the plan's."`
}

// Limits returns the limits that are given.
func (l OwnLimits) Limits() plan.Limits { return LimitsOf(l.Minute, l.Day, l.Month) }

// LimitChanges are changes of the limits of a plan or of a tenant.
type LimitChanges struct {
	Minute LimitChange `json:"minute" placeholder:"N" help:"Requests in any 60 seconds; none removes the limit."`
	Day    LimitChange `json:"day" placeholder:"N" help:"Requests in a UTC day; none removes the limit."`
	Month  LimitChange `json:"month" placeholder:"N" help:"Requests in a month; none removes the limit."`
}

// Limits returns the changes: see plan.Limits.Changed.
func (l LimitChanges) Limits() plan.Limits { return LimitsOf(l.Minute, l.Day, l.Month) }

// NoLimits removes all limits.
var NoLimits = LimitChanges{plan.None, plan.None, plan.None}

// MonthStart is the day on which a tenant's month begins.
type MonthStart struct {
	MonthStarts MonthStarts `json:"monthStarts" placeholder:"DAY" help:"The day, 1 to 28, of the UTC month on which its month begins (default: 1)."`
}

// CreateTenant are the arguments of tenant create.
type CreateTenant struct {
	Name TenantName `arg:"" json:"name" required:"" help:"The tenant's name; must be unique."`
	Plan PlanName   `default:"free" json:"plan" placeholder:"PLAN" help:"Its plan."`
	OwnLimits
	MonthStart
	Repeatable
}

// Prepare prepares the new tenant.
func (a CreateTenant) Prepare(_ context.Context, o Operator) (Operation, error) {
	spec := keystore.TenantSpec{Name: string(a.Name), Plan: string(a.Plan), Override: a.Limits(), MonthStarts: uint8(a.MonthStarts)}
	return o.CreateTenant(spec, a.IfNotExists), nil
}

// RenameTenant are the arguments of tenant rename.
type RenameTenant struct {
	TenantRef
	Name TenantName `arg:"" json:"name" required:"" help:"The new name; must be unique."`
}

// Prepare prepares the new name.
func (a RenameTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, func(t keystore.Tenant) Operation { return o.RenameTenant(t, string(a.Name)) })
}

// SuspendTenant is the argument of tenant suspend.
type SuspendTenant struct{ TenantRef }

// Prepare prepares the suspension.
func (a SuspendTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, o.SuspendTenant)
}

// ResumeTenant is the argument of tenant resume.
type ResumeTenant struct{ TenantRef }

// Prepare prepares the end of a suspension.
func (a ResumeTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, o.ResumeTenant)
}

// DeleteTenant is the argument of tenant delete.
type DeleteTenant struct{ TenantRef }

// Prepare prepares the deletion.
func (a DeleteTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, o.DeleteTenant)
}

// ResetUsage is the argument of usage reset.
type ResetUsage struct{ TenantRef }

// Prepare prepares the fresh quota.
func (a ResetUsage) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return a.prepare(ctx, o, o.ResetUsage)
}

// MoveTenant are the arguments of tenant set-plan.
type MoveTenant struct {
	TenantRef
	Plan PlanName `arg:"" json:"plan" required:"" help:"The plan's name."`
	OwnLimits
}

// Prepare prepares the move.
func (a MoveTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	if err != nil {
		return Operation{}, err
	}
	return o.MoveTenant(ctx, t, string(a.Plan), a.Limits(), "give a limit")
}

// SetLimits are the arguments of tenant set-quota.
type SetLimits struct {
	TenantRef
	LimitChanges
	MonthStart
}

// Check finds out whether there is something to change.
func (a SetLimits) Check() error {
	if !a.Limits().IsSet() && a.MonthStarts == 0 {
		return ArgumentError("give --minute, --day, --month or --month-starts")
	}
	return nil
}

// Prepare prepares the limits.
func (a SetLimits) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	if err != nil {
		return Operation{}, err
	}
	return o.SetQuota(ctx, t, a.Limits(), uint8(a.MonthStarts))
}

// ClearLimits is the argument of tenant set-quota --clear.
type ClearLimits struct{ TenantRef }

// Prepare prepares the end of all limits of the tenant's own.
func (a ClearLimits) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return SetLimits{TenantRef: a.TenantRef, LimitChanges: NoLimits}.Prepare(ctx, o)
}

// changeTenant carries out a change of a tenant. It reads what its outcome needs before the change: a change that was made never
// seems to have failed.
func (o Operator) changeTenant(
	change func(context.Context) (t keystore.Tenant, c keystore.Change, done string, err error),
) func(context.Context) (Outcome, error) {
	return func(ctx context.Context) (Outcome, error) {
		plans, err := o.Plans(ctx)
		if err != nil {
			return Outcome{}, err
		}
		t, c, done, err := change(ctx)
		if err != nil {
			return Outcome{}, err
		}
		return Outcome{Change: c, View: plans.Owner(t).View(), Done: done}, nil
	}
}

// CreateTenant prepares a new tenant. If ifNotExists and a tenant of that name exists, the tenant stays as it is.
func (o Operator) CreateTenant(spec keystore.TenantSpec, ifNotExists bool) Operation {
	return Operation{
		Laggard: "may not know this tenant yet",
		Change: func(ctx context.Context) (Outcome, error) {
			if err := o.admitsCosts(ctx, spec.Override); err != nil {
				return Outcome{}, err
			}
			existed := false
			r, err := o.changeTenant(func(ctx context.Context) (t keystore.Tenant, c keystore.Change, done string, err error) {
				t, c, err = o.Store.CreateTenant(ctx, spec)
				if existed = ifNotExists && errors.Is(err, keystore.ErrExists); !existed {
					return t, c, "Created tenant " + spec.Name + " on plan " + spec.Plan + ".", notFound(err, "plan", spec.Plan)
				}
				if t, err = o.Store.Tenant(ctx, spec.Name); err == nil {
					c, err = o.Store.LastEvent(ctx)
				}
				return t, c, "Tenant " + spec.Name + " already exists. It was not changed.", err
			})(ctx)
			r.Existed = existed
			return r, err
		},
	}
}

// SuspendTenant prepares a suspension.
func (o Operator) SuspendTenant(t keystore.Tenant) Operation {
	return Operation{
		Question: fmt.Sprintf("Suspend tenant %s? All its keys will be refused.", t.Name),
		Laggard:  "may still serve this tenant",
		Change: o.changeTenant(func(ctx context.Context) (keystore.Tenant, keystore.Change, string, error) {
			suspended, change, err := o.Store.Suspend(ctx, t.ID)
			return suspended, change, Either(!t.Suspended, "Suspended tenant "+t.Name+".", "Tenant "+t.Name+" was already suspended."), err
		}),
	}
}

// ResumeTenant prepares the end of a suspension.
func (o Operator) ResumeTenant(t keystore.Tenant) Operation {
	return Operation{
		Laggard: "may still refuse this tenant",
		Change: o.changeTenant(func(ctx context.Context) (keystore.Tenant, keystore.Change, string, error) {
			resumed, change, err := o.Store.Resume(ctx, t.ID)
			return resumed, change, Either(t.Suspended, "Resumed tenant "+t.Name+".", "Tenant "+t.Name+" was not suspended."), err
		}),
	}
}

// RenameTenant prepares another name.
func (o Operator) RenameTenant(t keystore.Tenant, name string) Operation {
	return Operation{
		Laggard: "may not know the new name yet",
		Change: o.changeTenant(func(ctx context.Context) (keystore.Tenant, keystore.Change, string, error) {
			renamed, change, err := o.Store.RenameTenant(ctx, t.ID, name)
			return renamed, change, Either(t.Name != name, "Renamed tenant "+t.Name+" to "+name+".", "The tenant already has the name "+name+"."), err
		}),
	}
}

// DeleteTenant prepares the deletion of a tenant whose keys have ended.
func (o Operator) DeleteTenant(t keystore.Tenant) Operation {
	return Operation{
		Question: fmt.Sprintf("Delete tenant %s and the records of its keys? It cannot be undone. The audit log and its usage stay, under %s.", t.Name, t.ID),
		Laggard:  "may still know this tenant, whose keys it refuses",
		Change: func(ctx context.Context) (Outcome, error) {
			r, err := o.changeTenant(func(ctx context.Context) (keystore.Tenant, keystore.Change, string, error) {
				deleted, change, err := o.Store.DeleteTenant(ctx, t.ID)
				return deleted, change, "Deleted tenant " + t.Name + ". Its usage and its changes stay, under " + t.ID.String() + ".", err
			})(ctx)
			r.Ended = true
			return r, err
		},
	}
}

// MoveTenant prepares the move of a tenant to a plan. It also gives the tenant limits of its own: see plan.Limits.Changed.
// If the tenant would lose its quota, the question has cure: what to do about it.
func (o Operator) MoveTenant(ctx context.Context, t keystore.Tenant, to string, own plan.Limits, cure string) (Operation, error) {
	plans, err := o.Plans(ctx)
	if err != nil {
		return Operation{}, err
	}
	will := t
	will.Plan, will.Override = to, t.Override.Changed(own)
	was, is := plans.Owner(t).Limits, plans.Owner(will).Limits
	if will != t {
		if err := o.admitsCosts(ctx, is, plans.Owner(will).TestLimits); err != nil {
			return Operation{}, err
		}
	}
	op := Operation{Laggard: "may still apply the old plan"}
	if _, known := plans[to]; known && was.IsSet() && !is.IsSet() {
		op.Question = fmt.Sprintf("Move tenant %s to plan %s, which has no limits? Without limits of its own (%s), "+
			"all its requests will be refused.", t.Name, to, cure)
	} else if known && plans.Owner(will).IsLess(plans.Owner(t)) {
		op.Question = fmt.Sprintf("Move tenant %s from plan %s to %s, which lowers its limits%s?", t.Name, t.Plan, to, colon(MovedLimits(was, is)))
	}
	op.Change = o.changeTenant(func(ctx context.Context) (keystore.Tenant, keystore.Change, string, error) {
		moved, change, err := o.Store.SetTerms(ctx, t.ID, to, own)
		done := "Tenant " + t.Name + " moved from plan " + t.Plan + " to " + to + "."
		switch changed := MovedLimits(was, is); {
		case moved == t:
			done = "Tenant " + t.Name + " was already on plan " + to + "."
		case moved.Plan == t.Plan:
			done = "Changed the limits of tenant " + t.Name + ": " + changed + "."
		case changed != "":
			done = "Tenant " + t.Name + " moved from plan " + t.Plan + " to " + to + ": " + changed + "."
		}
		if kept := Limits(t.Override); kept != "" && own == (plan.Limits{}) && moved.Plan != t.Plan {
			done += " Its own limits stay: " + kept + "."
		}
		return moved, change, done, notFound(err, "plan", to)
	})
	return op, nil
}

// SetQuota prepares limits of one tenant, and the day on which its month begins; 0: it is not changed. See plan.Limits.Changed.
func (o Operator) SetQuota(ctx context.Context, t keystore.Tenant, own plan.Limits, monthStarts uint8) (Operation, error) {
	plans, err := o.Plans(ctx)
	if err != nil {
		return Operation{}, err
	}
	op := Operation{Laggard: "may still apply the old limits"}
	will := t
	will.Override = t.Override.Changed(own)
	if err := o.admitsCosts(ctx, will.Override); err != nil {
		return Operation{}, err
	}
	if err := plans.Owner(will).Limits.Check(); err != nil && will.Override != t.Override {
		return Operation{}, fmt.Errorf("%w: in force with plan %s, %w", keystore.ErrInvalid, t.Plan, err)
	}
	if was, is := plans.Owner(t), plans.Owner(will); is.IsLess(was) {
		op.Question = fmt.Sprintf("Lower the limits of tenant %s%s?", t.Name, colon(MovedLimits(was.Limits, is.Limits)))
		if own == plan.NoLimits {
			op.Question = fmt.Sprintf("Remove the limits of tenant %s, so that those of plan %s apply (%s)?", t.Name, t.Plan, LimitsOrNone(plans[t.Plan].Limits))
		}
	}
	op.Change = o.changeTenant(func(ctx context.Context) (keystore.Tenant, keystore.Change, string, error) {
		changed, change, err := o.Store.SetQuota(ctx, t.ID, own, monthStarts)
		moved := MovedLimits(plans.Owner(t).Limits, plans.Owner(changed).Limits)
		done := "Changed the limits of tenant " + t.Name + ": " + moved + "."
		switch {
		case changed == t:
			return changed, change, "Tenant " + t.Name + " already had these limits.", err
		case changed.Override == t.Override:
			done = ""
		case moved == "":
			done = "Changed the limits of tenant " + t.Name + ". They are the same as its plan's."
		}
		if changed.MonthStarts != t.MonthStarts {
			done = strings.TrimPrefix(fmt.Sprintf("%s The month of tenant %s begins on day %d.", done, t.Name, changed.MonthStarts), " ")
		}
		return changed, change, done, err
	})
	return op, nil
}

// ResetUsage prepares a fresh quota of a tenant.
func (o Operator) ResetUsage(t keystore.Tenant) Operation {
	return Operation{
		Question: fmt.Sprintf("Set the usage of tenant %s back to zero?", t.Name),
		Laggard:  "may still count what was used before",
		Change: o.changeTenant(func(ctx context.Context) (keystore.Tenant, keystore.Change, string, error) {
			change, err := o.Store.ResetUsage(ctx, t.ID)
			return t, change, "Reset the usage of tenant " + t.Name + ".", err
		}),
	}
}
