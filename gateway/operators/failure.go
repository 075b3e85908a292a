package operators

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"petgate/shared/api"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/operate/declare"
)

// failure is an error as the API answers it.
type failure struct {
	status        int
	code, message string
	field         string // the argument that is wrong; empty: none
}

func (f failure) Error() string { return f.message }

// mistake is what is wrong with an argument; without a name, with the body.
type mistake struct{ name, text string }

// invalid is the failure of wrong arguments, or nil.
func invalid(bad ...mistake) error {
	if len(bad) == 0 {
		return nil
	}
	slices.SortStableFunc(bad, func(a, b mistake) int { return strings.Compare(a.name, b.name) })
	texts := operate.ViewsOf(bad, func(m mistake) string { return strings.TrimPrefix(m.name+": "+m.text, ": ") })
	return failure{
		status: http.StatusBadRequest, code: "invalid_request", message: strings.Join(texts, "; "), field: bad[0].name,
	}
}

// fail writes the answer for an error.
func (a *API) fail(w http.ResponseWriter, err error) {
	f := a.failureOf(err)
	answer := api.Error{Code: f.code, Message: f.message, Status: f.status}
	if f.field != "" {
		answer.Details = api.Named{Kind: "field", Name: f.field}
	}
	w.Header().Set("Content-Type", "application/json")
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(f.status)
	_, _ = w.Write(answer.AppendJSON(nil))
}

// kinds are the errors of the key tables that are the caller's matter.
var kinds = []struct {
	err    error
	status int
	code   string
}{
	{keystore.ErrNotFound, http.StatusNotFound, "not_found"},
	{keystore.ErrExists, http.StatusConflict, "already_exists"},
	{keystore.ErrConflict, http.StatusConflict, "conflict"},
	{keystore.ErrInvalid, http.StatusBadRequest, "invalid_request"},
	{declare.ErrChanged, http.StatusConflict, "conflict"},
}

func (a *API) failureOf(err error) failure {
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			return failure{status: kind.status, code: kind.code, message: operate.Reason(err, kind.err)}
		}
	}
	var f failure
	var argument *operate.ArgumentError
	var mistakes *declare.Mistakes
	var unknown *keystore.UnknownError
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &argument):
		return failure{
			status: http.StatusBadRequest, code: "invalid_request",
			message: argument.With(fieldName), field: fieldName(argument.First()),
		}
	case errors.As(err, &mistakes):
		return failure{status: http.StatusBadRequest, code: "invalid_request", message: mistakes.Line()}
	case errors.As(err, &unknown):
		a.cfg.Log.Warn("operators: it is not known whether a change was made", "kind", unknown.Kind, "error", err)
		return failure{
			status: http.StatusServiceUnavailable, code: "outcome_unknown",
			message: "the change may have been made: the answer to its commit was lost. With an Idempotency-Key, " +
				"send the same request again; without one, look for " + unknown.Kind + " in the audit log first",
		}
	case database.IsDenied(err):
		a.cfg.Log.Warn("operators: its database role lacks a right", "error", err)
		return failure{
			status: http.StatusServiceUnavailable, code: "database_unavailable",
			message: "the API's database role may not do this: set GATEWAY_CONSOLE_DATABASE_URL to the URL " +
				"of keyadmin's role. If it is set, run roles.sql again, as after every upgrade",
		}
	}
	a.cfg.Log.Warn("operators: the database cannot be used", "error", err)
	return failure{
		status: http.StatusServiceUnavailable, code: "database_unavailable",
		message: "nothing was changed: " + err.Error() +
			". Try again in a moment; `keyadmin doctor` finds the cause if this stays",
	}
}
