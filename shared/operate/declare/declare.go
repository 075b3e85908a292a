// Package declare compares documents that declare plans, tenants and keys with the key database,
// and makes it as they say. Keyadmin and the operators' API use it: export, diff and apply.
//
// What a document names is declared as a whole: a member that is left out has its default. Records
// that it does not name stay as they are, unless they are pruned.
package declare

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// Pruning is the argument of commands that compare a document with the database.
type Pruning struct {
	Prune bool `json:"prune" help:"Suspend tenants that the file does not name. If a tenant in the file has the member keys, revoke its other keys."`
}

// ErrChanged means that other changes would have been made than those that were listed.
var ErrChanged = errors.New(
	"the database has changed since the changes were listed. Nothing was changed: repeat the command")

// ChangeView is a change as JSON; scripts rely on its fields.
type ChangeView struct {
	Action string `json:"action"` // create or change
	Kind   string `json:"kind"`   // plan, tenant or key
	Name   string `json:"name"`   // of the plan or of the tenant
	KeyID  string `json:"keyId,omitempty"`
	Change string `json:"change"`
}

// ChangesView is what a document changes as JSON.
type ChangesView struct {
	Changes []ChangeView `json:"changes"`
	LeftOut []string     `json:"leftOut"` // keys that the document names, but that cannot be changed
}

// Difference is what differs between a document and the database.
type Difference struct {
	ChangesView
	edits keystore.Edits
	costs operate.Costs // that its limits were compared with

	lessens bool // a limit in force, or what a key or a tenant may do at all
}

// HasNothing reports whether there is nothing to change.
func (d Difference) HasNothing() bool { return len(d.Changes) == 0 }

// LeftOutText says why keys are left out. Empty: none is.
func (c ChangesView) LeftOutText() string {
	if len(c.LeftOut) == 0 {
		return ""
	}
	return "Left out: " + operate.Plural(len(c.LeftOut), "key") + ". A key that does not exist cannot be created " +
		"without its token, and a key that has ended cannot be changed. A new one: keyadmin key create TENANT"
}

// Compare finds what the document changes in the database. It reads at most rowsMax tenants and
// keys; 0: all. Errors: a *Mistakes, which names everything in the document that does not fit, and
// a keystore.ErrConflict if there are more rows.
func (d Document) Compare(ctx context.Context, o operate.Operator, p Pruning, rowsMax int) (Difference, error) {
	state, err := read(ctx, o, rowsMax)
	if err != nil {
		return Difference{}, err
	}
	costs, err := o.Costs(ctx)
	if err != nil {
		return Difference{}, err
	}
	return d.compare(o, state, costs, p)
}

// read reads the state of the database.
func read(ctx context.Context, o operate.Operator, rowsMax int) (state keystore.State, err error) {
	if rowsMax == 0 {
		return o.Store.State(ctx)
	}
	rows := 0
	count := func() error {
		if rows++; rows > rowsMax {
			return fmt.Errorf("%w: the database has more than %s and keys: use keyadmin on a machine of its own",
				keystore.ErrConflict, operate.Plural(rowsMax, "tenant"))
		}
		return nil
	}
	err = o.Store.PassState(ctx, keystore.StateRows{
		Plans: func(plans []keystore.Plan) error {
			state.Plans = plans
			return nil
		},
		Tenant: func(t keystore.Tenant) error {
			state.Tenants = append(state.Tenants, t)
			return count()
		},
		Key: func(k keystore.Key) error {
			state.Keys = append(state.Keys, k)
			return count()
		},
	})
	return state, err
}

// Prepare prepares the changes of the document. shown are those that Compare has found. If isSure,
// what differs at the time of the change is changed. Otherwise, it is an ErrChanged if that is not
// what was shown. The view of the outcome is a ChangesView.
func (d Document) Prepare(o operate.Operator, shown Difference, p Pruning, isSure bool) operate.Operation {
	op := operate.Operation{Laggard: "may not know these changes yet"}
	if shown.lessens {
		op.Question = "Apply " + operate.Plural(len(shown.Changes), "change") +
			"? Some lower a limit, suspend a tenant, or end or disable a key."
	}
	op.Change = func(ctx context.Context) (r operate.Outcome, err error) {
		var made Difference
		r.Change, err = o.Store.Apply(ctx, func(now keystore.State) (keystore.Edits, error) {
			var err error
			if made, err = d.compare(o, now, shown.costs, p); err != nil {
				return keystore.Edits{}, err
			}
			if !isSure && !slices.Equal(made.Changes, shown.Changes) {
				return keystore.Edits{}, ErrChanged
			}
			return made.edits, nil
		})
		r.View = made.ChangesView
		if !made.HasNothing() {
			r.Done = "Applied " + operate.Plural(len(made.Changes), "change") + "."
		}
		return r, err
	}
	return op
}
