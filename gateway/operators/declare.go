package operators

import (
	"net/http"
	"reflect"

	"petgate/shared/operate"
	"petgate/shared/operate/declare"
)

// stateRowsMax limits the tenants and keys that a document is compared with: all of them are in the
// memory of a process that serves clients.
const stateRowsMax = 100_000

var diff = call{
	method: post, path: "/diff", verb: "diff", role: read, declares: true,
	summary:   "List what apply would change. The body is a document that export writes, as YAML or JSON.",
	arguments: reflect.TypeFor[declare.Pruning](), result: reflect.TypeFor[declare.ChangesView](), serve: serveDiff,
}

var apply = call{
	method: post, path: "/apply", verb: "apply", role: admin, declares: true, changes: true, asks: true,
	summary: "Make plans, tenants and keys as a document says. " +
		"The body is a document that export writes, as YAML or JSON.",
	arguments: reflect.TypeFor[applied](), result: reflect.TypeFor[declare.ChangesView](), serve: serveApply,
}

// applied are the arguments of apply.
type applied struct {
	declare.Pruning
	DryRun bool `json:"dryRun" help:"Only list the changes, like diff."`
}

func serveDiff(a *API, _ *http.Request, v *visit, arguments any) (answer, error) {
	if err := a.waitToCompare(v); err != nil {
		return answer{}, err
	}
	defer a.comparing.Release(1)
	_, found, err := v.compare(*arguments.(*declare.Pruning))
	return answer{body: found.ChangesView}, err
}

func serveApply(a *API, r *http.Request, v *visit, arguments any) (answer, error) {
	given := *arguments.(*applied)
	op, outcome, err := a.applyDocument(v, given)
	if err != nil || given.DryRun {
		return answer{body: outcome.View}, err
	}
	return a.confirm(r, v, outcome.Change, op.Laggard, outcome.View), nil
}

// applyDocument compares the document of a request with the database, and makes the changes. With
// confirm=true, it makes those that are found at the time of the change.
func (a *API) applyDocument(v *visit, given applied) (op operate.Operation, made operate.Outcome, err error) {
	if err := a.waitToCompare(v); err != nil {
		return op, made, err
	}
	defer a.comparing.Release(1)
	document, found, err := v.compare(given.Pruning)
	if err != nil || given.DryRun {
		made.View = found.ChangesView
		return op, made, err
	}
	op = document.Prepare(v.operator, found, given.Pruning, v.confirmed)
	made, err = v.make(op)
	return op, made, err
}

// waitToCompare waits until no other document is compared: two at once would need twice the memory.
func (a *API) waitToCompare(v *visit) error {
	if a.comparing.Acquire(v.ctx, 1) != nil {
		return failure{
			status: http.StatusServiceUnavailable, code: "database_unavailable",
			message: "nothing was changed: another document is being compared. Try again in a moment",
		}
	}
	return nil
}

// compare reads the document of a request and finds what it changes.
func (v *visit) compare(p declare.Pruning) (d declare.Document, found declare.Difference, err error) {
	if operate.HasToken(string(v.body)) {
		return d, found, invalid(mistake{"", "the document has a token, which is not repeated here: use an ID"})
	}
	if d, err = declare.Read("body", v.body); err != nil {
		return d, found, err
	}
	found, err = d.Compare(v.ctx, v.operator, p, stateRowsMax)
	return d, found, err
}
