package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"petgate/shared/core/id"
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
		ID:          t.ID.String(),
		Name:        t.Name,
		Plan:        t.Plan,
		Suspended:   t.Suspended,
		Override:    ViewLimits(t.Override),
		Limits:      ViewLimits(t.Limits),
		MonthStarts: max(1, t.MonthStarts), CreatedAt: t.CreatedAt.String(), Owner: t,
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

// NoQuota says why all requests of the tenant are refused, if it has no limit. Empty: it has one,
// or it is suspended.
func (v TenantView) NoQuota() string {
	if v.Owner.Limits.IsSet() || v.Suspended {
		return ""
	}
	return fmt.Sprintf(
		"Tenant %s has no quota: plan %s has no limits. Its requests are refused with 403 quota_not_set.", v.Name,
		v.Plan)
}

// TenantRef names a tenant.
type TenantRef struct {
	Tenant string `arg:"" json:"tenant" required:"" help:"ID or name."`
}

// MonthStart is the day on which a tenant's month begins.
type MonthStart struct {
	MonthStarts MonthStarts `json:"monthStarts" title:"Month begins on day" placeholder:"DAY" help:"The day, 1 to 28, of the UTC month on which its month begins (default: 1)."`
}

// tenantChange is a change of one tenant.
type tenantChange struct {
	ask, laggard  string // see Operation
	done, already string // sentences, if the tenant was changed and if it was so before
	made          func(context.Context, id.Tenant) (keystore.Tenant, keystore.Change, error)

	then func(is keystore.Tenant, r *Outcome) // completes the outcome; may be nil
}

// changeTenant prepares a change of a tenant. It reads the plans before the change: a change that
// was made never seems to have failed.
func (o Operator) changeTenant(t Owner, c tenantChange) Operation {
	return Operation{Question: c.ask, Laggard: c.laggard, Change: func(ctx context.Context) (Outcome, error) {
		plans, err := o.Plans(ctx)
		if err != nil {
			return Outcome{}, err
		}
		is, change, err := c.made(ctx, t.ID)
		if err != nil {
			return Outcome{}, err
		}
		r := Outcome{Change: change, View: plans.Owner(is).View(), Done: c.done, Hint: plans.Owner(is).quotaHint()}
		if c.then != nil {
			c.then(is, &r)
		}
		if is == t.Tenant && c.already != "" {
			r.Done = c.already
		}
		return r, nil
	}}
}

// quotaHint says how a tenant without a limit gets one.
func (t Owner) quotaHint() string {
	why := t.View().NoQuota()
	return Either(why == "", "",
		"\n"+why+"\nSet its limits: keyadmin tenant set-quota "+ShellWord(t.Name)+" --minute N --day N")
}

// CreateTenant are the arguments of tenant create.
type CreateTenant struct {
	Name TenantName `arg:"" json:"name" required:"" help:"The tenant's name; must be unique."`
	Plan PlanName   `default:"free" json:"plan" placeholder:"PLAN" help:"Its plan."`
	NewLimits
	MonthStart
	Repeatable
}

// Prepare prepares the new tenant, or finds one that has its name.
func (a CreateTenant) Prepare(_ context.Context, o Operator) (Operation, error) {
	spec := keystore.TenantSpec{
		Name:        string(a.Name),
		Plan:        string(a.Plan),
		Override:    a.Limits(),
		MonthStarts: uint8(a.MonthStarts),
	}
	done, hint := "Created tenant "+spec.Name+" on plan "+spec.Plan+".", " Its first key: keyadmin key create "+
		""+ShellWord(
		spec.Name,
	)
	return o.changeTenant(Owner{}, tenantChange{
		laggard: "may not know this tenant yet",
		made: func(ctx context.Context, _ id.Tenant) (t keystore.Tenant, c keystore.Change, err error) {
			if err := o.admitsCosts(ctx, spec.Override); err != nil {
				return t, c, err
			}
			t, c, err = o.Store.CreateTenant(ctx, spec)
			if !a.IfNotExists || !errors.Is(err, keystore.ErrExists) {
				return t, c, notFound(err, "plan", spec.Plan)
			}
			done, hint = "Tenant "+spec.Name+" already exists. It was not changed.", ""
			if t, err = o.Store.Tenant(ctx, spec.Name); err == nil {
				c, err = o.Store.LastEvent(ctx)
			}
			return t, c, err
		},
		then: func(is keystore.Tenant, r *Outcome) { r.Done, r.Line, r.Hint = done, is.ID.String(), hint+r.Hint },
	}), nil
}

// RenameTenant are the arguments of tenant rename.
type RenameTenant struct {
	TenantRef
	Name TenantName `arg:"" json:"name" required:"" help:"The new name; must be unique."`
}

// Prepare prepares the new name.
func (a RenameTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	return o.changeTenant(t, tenantChange{
		laggard: "may not know the new name yet",
		done:    "Renamed tenant " + t.Name + " to " + string(a.Name) + ".",
		already: "The tenant already has the name " + t.Name + ".",
		made: func(ctx context.Context, tenant id.Tenant) (keystore.Tenant, keystore.Change, error) {
			return o.Store.RenameTenant(ctx, tenant, string(a.Name))
		},
	}), err
}

// SuspendTenant is the argument of tenant suspend.
type SuspendTenant struct{ TenantRef }

// Prepare prepares the suspension.
func (a SuspendTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	return o.changeTenant(t, tenantChange{
		ask: "Suspend tenant " + t.Name + "? All its keys will be refused.", laggard: "may still serve this tenant",
		done:    "Suspended tenant " + t.Name + ".",
		already: "Tenant " + t.Name + " was already suspended.",
		made:    o.Store.Suspend,
	}), err
}

// ResumeTenant is the argument of tenant resume.
type ResumeTenant struct{ TenantRef }

// Prepare prepares the end of a suspension.
func (a ResumeTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	return o.changeTenant(t, tenantChange{
		laggard: "may still refuse this tenant",
		done:    "Resumed tenant " + t.Name + ".",
		already: "Tenant " + t.Name + " was not suspended.",
		made:    o.Store.Resume,
	}), err
}

// DeleteTenant is the argument of tenant delete.
type DeleteTenant struct{ TenantRef }

// Prepare prepares the deletion of a tenant whose keys have ended.
func (a DeleteTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	return o.changeTenant(t, tenantChange{
		ask: fmt.Sprintf(
			"Delete tenant %s and the records of its keys? It cannot be undone. The audit log and its usage "+
				"stay, under %s.",
			t.Name,
			t.ID,
		),
		laggard: "may still know this tenant, whose keys it refuses", made: o.Store.DeleteTenant,
		done: "Deleted tenant " + t.Name + ". Its usage and its changes stay, under " + t.ID.String() + ".",
		then: func(_ keystore.Tenant, r *Outcome) { r.Hint = "" },
	}), err
}

// ResetUsage is the argument of usage reset.
type ResetUsage struct{ TenantRef }

// Prepare prepares the fresh quota.
func (a ResetUsage) Prepare(ctx context.Context, o Operator) (Operation, error) {
	t, err := o.Tenant(ctx, a.Tenant)
	return o.changeTenant(t, tenantChange{
		ask: "Set the usage of tenant " + t.Name + " back to zero?", laggard: "may still count what was used before",
		done: "Reset the usage of tenant " + t.Name + ".",
		made: func(ctx context.Context, tenant id.Tenant) (keystore.Tenant, keystore.Change, error) {
			change, err := o.Store.ResetUsage(ctx, tenant)
			return t.Tenant, change, err
		},
	}), err
}

// planned reads the tenant as it is and as an edit makes it, and the plans.
func (a TenantRef) planned(
	ctx context.Context, o Operator, edit func(*keystore.Tenant),
) (was, will Owner, plans Plans, err error) {
	if was, err = o.Tenant(ctx, a.Tenant); err != nil {
		return was, will, nil, err
	}
	plans, err = o.Plans(ctx)
	t := was.Tenant
	edit(&t)
	return was, plans.Owner(t), plans, err
}

// MoveTenant are the arguments of tenant set-plan.
type MoveTenant struct {
	TenantRef
	Plan PlanName `arg:"" json:"plan" required:"" help:"The plan's name."`
	NewLimits
}

// Prepare prepares the move of the tenant to the plan, and limits of its own: see
// plan.Limits.Changed.
func (a MoveTenant) Prepare(ctx context.Context, o Operator) (Operation, error) {
	to, own := string(a.Plan), a.Limits()
	was, will, plans, err := a.planned(ctx, o,
		func(t *keystore.Tenant) { t.Plan, t.Override = to, t.Override.Changed(own) })
	if err == nil && will.Tenant != was.Tenant {
		err = o.admitsCosts(ctx, will.Limits, will.TestLimits)
	}
	if err != nil {
		return Operation{}, err
	}
	ask, moved := "", colon(MovedLimits(was.Limits, will.Limits))
	if _, known := plans[to]; known && was.Limits.IsSet() && !will.Limits.IsSet() {
		ask = fmt.Sprintf(
			"Move tenant %s to plan %s, which has no limits? Unless it gets limits of its own with this change, "+
				"all its requests will be refused.",
			was.Name,
			to,
		)
	} else if known && will.IsLess(was) {
		ask = fmt.Sprintf("Move tenant %s from plan %s to %s, which lowers its "+
			"limits%s?", was.Name, was.Plan, to, moved)
	}
	done, hint, keeps := "Tenant "+was.Name+" moved from plan "+was.Plan+" to "+to+moved+".", "", Limits(was.Override)
	if to == was.Plan {
		done = "Changed the limits of tenant " + was.Name + moved + "."
	} else if keeps != "" && own == (plan.Limits{}) {
		done += " Its own limits stay: " + keeps + "."
		hint = "\nTo clear them: keyadmin tenant set-quota " + ShellWord(was.Name) + " --clear"
	}
	return o.changeTenant(was, tenantChange{
		ask:     ask,
		laggard: "may still apply the old plan",
		done:    done,
		already: "Tenant " + was.Name + " was already on plan " + to + ".",
		made: func(ctx context.Context, tenant id.Tenant) (keystore.Tenant, keystore.Change, error) {
			t, change, err := o.Store.SetTerms(ctx, tenant, to, own)
			return t, change, notFound(err, "plan", to)
		},
		then: func(_ keystore.Tenant, r *Outcome) { r.Hint = hint + r.Hint },
	}), nil
}

// SetLimits are the arguments of tenant set-quota.
type SetLimits struct {
	TenantRef
	LimitChanges
	MonthStart
	Clear bool `json:"clear" help:"Remove all of them: the plan's limits apply again. The start of its month stays."`
}

// Check finds out whether there is something to change, and whether the arguments contradict each
// other.
func (a SetLimits) Check() error {
	switch {
	case a.Clear && a.Limits().IsSet():
		return mistaken(Flag("clear"), " removes all limits: do not combine it with ",
			Flag("minute"), ", ", Flag("day"), " or ", Flag("month"))
	case !a.Clear && !a.Limits().IsSet() && a.MonthStarts == 0:
		return mistaken("give ", Flag("minute"), ", ", Flag("day"), ", ", Flag("month"), " or ", Flag("monthStarts"),
			", or ", Flag("clear"), " to remove the limits")
	}
	return nil
}

// Prepare prepares the limits: see plan.Limits.Changed.
func (a SetLimits) Prepare(ctx context.Context, o Operator) (Operation, error) {
	own, starts := a.Limits(), uint8(a.MonthStarts)
	if a.Clear {
		own = plan.NoLimits
	}
	was, will, plans, err := a.planned(ctx, o, func(t *keystore.Tenant) {
		t.Override, t.MonthStarts = t.Override.Changed(own), cmp.Or(starts, t.MonthStarts)
	})
	if err == nil {
		err = o.admitsCosts(ctx, will.Override)
	}
	if err != nil {
		return Operation{}, err
	}
	if err := will.Limits.Check(); err != nil && will.Override != was.Override {
		return Operation{}, fmt.Errorf("%w: in force with plan %s, %w", keystore.ErrInvalid, was.Plan, err)
	}
	ask := ""
	switch moved := MovedLimits(was.Limits, will.Limits); {
	case !will.IsLess(was):
	case own == plan.NoLimits:
		ask = fmt.Sprintf("Remove the limits of tenant %s, so that those of plan %s apply (%s)?", was.Name, was.Plan,
			LimitsOrNone(plans[was.Plan].Limits))
	default:
		ask = "Lower the limits of tenant " + was.Name + colon(moved) + "?"
	}
	return o.changeTenant(was, tenantChange{
		ask:     ask,
		laggard: "may still apply the old limits",
		already: "Tenant " + was.Name + " already had these limits.",
		made: func(ctx context.Context, tenant id.Tenant) (keystore.Tenant, keystore.Change, error) {
			return o.Store.SetQuota(ctx, tenant, own, starts)
		},
		then: func(t keystore.Tenant, r *Outcome) {
			var done []string
			if moved := MovedLimits(was.Limits, plans.Owner(t).Limits); moved != "" {
				done = append(done, "Changed the limits of tenant "+t.Name+": "+moved+".")
			} else if t.Override != was.Override {
				done = append(done, "Changed the limits of tenant "+t.Name+". They are the same as its plan's.")
			}
			if t.MonthStarts != was.MonthStarts {
				done = append(done, fmt.Sprintf("The month of tenant %s begins on day %d.", t.Name, t.MonthStarts))
			}
			r.Done = strings.Join(done, " ")
			hint := ""
			if limits := Limits(plans.Owner(t).Limits); limits != "" {
				hint = " In force: " + limits + "."
			}
			if own.Month == plan.None && starts == 0 && t.MonthStarts > 1 {
				hint += fmt.Sprintf(" Its month still begins on day %d: --month-starts 1 changes that.", t.MonthStarts)
			}
			r.Hint = hint + r.Hint
		},
	}), nil
}

// ClearLimits is the argument of the call that removes all limits of the tenant's own.
type ClearLimits struct{ TenantRef }

// Prepare prepares the end of the limits.
func (a ClearLimits) Prepare(ctx context.Context, o Operator) (Operation, error) {
	return SetLimits{TenantRef: a.TenantRef, Clear: true}.Prepare(ctx, o)
}
