// Package operate is what operators do, for the programs that they do it with: keyadmin and the
// operators' console. It has the changes with what is asked before them, the waiting until gateways
// have applied a change, and the records as programs read them.
//
// The arguments of each change are a struct here, so that all programs read and check the same. It
// knows no tables or pages. Its texts are sentences for people; keyadmin adds its commands to them.
package operate

import (
	"context"
	"errors"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
)

// Operator reads and changes a key database. It is safe for concurrent use if its clock is.
type Operator struct {
	Store *keystore.Store  // its actor is the one who does it
	Clock func() time.Time // nil: time.Now
}

func (o Operator) clock() time.Time {
	if o.Clock == nil {
		return time.Now()
	}
	return o.Clock()
}

// Now returns the time by the operator's clock.
func (o Operator) Now() instant.Millis { return instant.Of(o.clock()) }

// Operation is a change that was prepared and not made yet.
type Operation struct {
	Question string // to ask before the change; empty: nothing
	Harmless bool   // the question is for a person; a script need not answer it
	Laggard  string // what a gateway that has not applied the change may do: "may still accept this key"

	// Change makes the change. Repeating a change that was made does nothing, and the outcome is
	// that of the earlier one. With a
	// *keystore.UnknownError, the outcome is what may have been made.
	Change func(context.Context) (Outcome, error)
}

// Outcome is what an operation has changed.
type Outcome struct {
	Change keystore.Change
	View   any    // what was changed, for programs; may be nil
	Done   string // a sentence; may be empty
	Hint   string // what may come next, with commands of keyadmin; follows Done; may be empty
	Line   string // what a script gets that reads no JSON: the ID of a new tenant; may be empty
}

// NewKey returns the key that was created with its token. The token is nowhere else.
func (o Outcome) NewKey() (v KeyView, isNew bool) {
	switch made := o.View.(type) {
	case KeyView:
		v = made
	case RotationView:
		v = made.KeyView
	}
	return v, v.Token != ""
}

// Owner is a tenant with its effective limits. With a key, it decides whether the key may call.
type Owner struct {
	keystore.Tenant
	Limits     plan.Limits // of live keys
	TestLimits plan.Limits // of test keys
}

// LimitsIn returns the effective limits in an environment.
func (t Owner) LimitsIn(e apikey.Environment) plan.Limits {
	if e == apikey.Test {
		return t.TestLimits
	}
	return t.Limits
}

// IsLess reports whether the limits in force are smaller than before, of live keys or of test keys.
// Every change that makes a limit smaller asks first, and no change that only makes limits larger
// does.
func (t Owner) IsLess(than Owner) bool {
	return t.Limits.IsLess(than.Limits) || t.TestLimits.IsLess(than.TestLimits)
}

// Plans are all plans by name.
type Plans map[string]keystore.Plan

// Owner returns a tenant with the limits that are in force for it.
func (p Plans) Owner(t keystore.Tenant) Owner {
	of := p[t.Plan]
	return Owner{t, of.InForce(t.Override, apikey.Live), of.InForce(t.Override, apikey.Test)}
}

// Plans reads all plans.
func (o Operator) Plans(ctx context.Context) (Plans, error) {
	plans, err := o.Store.Plans(ctx)
	if err != nil {
		return nil, err
	}
	byName := make(Plans, len(plans))
	for _, p := range plans {
		byName[p.Name] = p
	}
	return byName, nil
}

// Owner returns a tenant with the limits that are in force for it.
func (o Operator) Owner(ctx context.Context, t keystore.Tenant) (Owner, error) {
	plans, err := o.Plans(ctx)
	return plans.Owner(t), err
}

// Tenant finds a tenant by its ID or name. No name looks like an ID, so it is never ambiguous.
// Errors: a NotFoundError.
func (o Operator) Tenant(ctx context.Context, idOrName string) (Owner, error) {
	t, err := o.Store.Tenant(ctx, idOrName)
	if err != nil {
		return Owner{}, notFound(err, "tenant", idOrName)
	}
	return o.Owner(ctx, t)
}

// AnyTenant also finds a deleted tenant, by its ID.
func (o Operator) AnyTenant(ctx context.Context, idOrName string) (Owner, error) {
	if tenant, err := id.ParseTenant(idOrName); err == nil {
		if t, err := lists.Of(o.Store).DeletedTenant(ctx, tenant); err == nil {
			return o.Owner(ctx, t)
		} else if !errors.Is(err, keystore.ErrNotFound) {
			return Owner{}, err
		}
	}
	return o.Tenant(ctx, idOrName)
}

// Key finds a key and its tenant. Errors: a NotFoundError.
func (o Operator) Key(ctx context.Context, key id.Key) (t Owner, k keystore.Key, err error) {
	if k, err = o.Store.Key(ctx, key); err != nil {
		return t, k, notFound(err, "key", key.String())
	}
	t, err = o.Tenant(ctx, k.Tenant.String())
	return t, k, err
}

// Owners returns tenants with their limits. Those that do not exist are left out.
func (o Operator) Owners(ctx context.Context, ids []id.Tenant) (map[id.Tenant]Owner, error) {
	tenants, err := lists.Of(o.Store).TenantsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	plans, err := o.Plans(ctx)
	if err != nil {
		return nil, err
	}
	owners := make(map[id.Tenant]Owner, len(tenants))
	for _, t := range tenants {
		owners[t.ID] = plans.Owner(t)
	}
	return owners, nil
}
