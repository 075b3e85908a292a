package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

const (
	// changeWithin bounds a change and the waiting for gateways.
	changeWithin = 2 * databaseWithin

	// notesFor is how long a browser can ask for its note.
	notesFor = 10 * time.Minute
)

// form is a form that changes something. The names of its fields are those of the arguments' JSON
// members.
type form struct {
	path      string        // below Home
	verb      string        // of the button that answers its question
	role      sessions.Role // that may send it
	arguments operate.Preparer

	fields func(url.Values) url.Values       // the arguments that its fields mean; nil: they are the arguments
	next   func(made operate.Outcome) string // the path of the page that follows; nil: the page with the form
}

const (
	keys  = sessions.RoleKeys
	admin = sessions.RoleAdmin
)

var forms = []form{
	{path: "tenants", verb: "Create", role: admin, arguments: operate.CreateTenant{}, next: pageOfTenant},
	{path: "tenants/{tenant}/rename", verb: "Rename", role: admin, arguments: operate.RenameTenant{}},
	{
		path: "tenants/{tenant}/delete", verb: "Delete", role: admin, arguments: operate.DeleteTenant{},
		next: pageOfTenants,
	},
	{path: "tenants/{tenant}/suspend", verb: "Suspend", role: admin, arguments: operate.SuspendTenant{}},
	{path: "tenants/{tenant}/resume", verb: "Resume", role: admin, arguments: operate.ResumeTenant{}},
	{path: "tenants/{tenant}/reset", verb: "Reset the usage", role: admin, arguments: operate.ResetUsage{}},
	{path: "tenants/{tenant}/plan", verb: "Move", role: admin, arguments: operate.MoveTenant{}},
	{path: "tenants/{tenant}/limits", verb: "Set the limits", role: admin, arguments: operate.SetLimits{}},
	{path: "tenants/{tenant}/clear-limits", verb: "Remove the limits", role: admin, arguments: operate.ClearLimits{}},
	{
		path: "tenants/{tenant}/keys", verb: "Create a key", role: keys, arguments: operate.CreateKey{},
		fields: chosenScopes,
	},
	{path: "keys/{key}/update", verb: "Update", role: keys, arguments: operate.UpdateKey{}, fields: changedTerms},
	{path: "keys/{key}/rotate", verb: "Rotate", role: keys, arguments: operate.RotateKey{}},
	{path: "keys/{key}/disable", verb: "Disable", role: keys, arguments: operate.DisableKey{}},
	{path: "keys/{key}/enable", verb: "Enable", role: keys, arguments: operate.EnableKey{}},
	{path: "keys/{key}/revoke", verb: "Revoke", role: keys, arguments: operate.RevokeKey{}},
	{path: "keys/{key}/ban", verb: "Ban", role: keys, arguments: operate.AddBan{}},
	{path: "keys/{key}/lift", verb: "Lift the ban", role: keys, arguments: operate.LiftBan{}},
	{path: "bans", verb: "Ban", role: keys, arguments: operate.AddBan{}},
	{path: "plans", verb: "Create", role: admin, arguments: operate.CreatePlan{}},
	{path: "plans/update", verb: "Lower the limits", role: admin, arguments: operate.UpdatePlan{}},
	{path: "plans/delete", verb: "Delete", role: admin, arguments: operate.DeletePlan{}},
}

func pageOfTenant(made operate.Outcome) string { return tenantPath(made.View.(operate.TenantView).ID) }

func pageOfTenants(operate.Outcome) string { return tenantsPath }

// titles are the titles of the fields of all forms and filters, by the names of their arguments.
var titles = func() map[string]string {
	all := map[string]string{"after": "Page"}
	add := func(arguments any) {
		for _, a := range operate.ArgumentsOf(reflect.TypeOf(arguments)) {
			all[a.Name] = a.Title
		}
	}
	for _, f := range forms {
		add(f.arguments)
	}
	for _, filter := range []any{
		operate.FindTenants{}, operate.FindKeys{}, operate.FindBans{}, operate.FindEvents{}, operate.NextCall{},
	} {
		add(filter)
	}
	return all
}()

// formError is what is wrong in a form, a line for each mistake: nothing was tried.
type formError struct{ text string }

func (e formError) Error() string { return e.text }

// mistakeIn returns what is wrong in a form or an address; empty: nothing.
func mistakeIn(err error) string {
	var mistake formError
	var argument *operate.ArgumentError
	switch {
	case errors.As(err, &mistake):
		return mistake.text
	case errors.As(err, &argument):
		return argument.With(func(f operate.Flag) string { return titles[string(f)] }) + "."
	}
	return ""
}

// read reads the arguments of a change from the path and the form of a request.
func (f form) read(r *http.Request) (operate.Preparer, error) {
	given := r.PostForm
	if f.fields != nil {
		given = f.fields(given)
	}
	arguments, err := readArguments(r, given, f.arguments)
	if err != nil {
		return nil, err
	}
	if checker, checks := arguments.(operate.Checker); checks && checker.Check() != nil {
		return nil, formError{"Nothing is filled in or changed. Give at least one value."}
	}
	return arguments, nil
}

// readArguments reads arguments from the path of a request and from its fields. Empty fields are
// not given. A formError names all mistakes.
func readArguments[A any](r *http.Request, given url.Values, arguments A) (A, error) {
	into := reflect.New(reflect.TypeOf(arguments)).Elem()
	texts, bad := url.Values{}, []string(nil)
	for _, a := range operate.ArgumentsOf(into.Type()) {
		text := strings.TrimSpace(strings.Join(given[a.Name], "\n"))
		switch inPath := r.PathValue(a.Name); {
		case inPath != "":
			texts.Set(a.Name, inPath)
		case a.IsList() && text != "":
			texts[a.Name] = strings.Fields(text)
		case text != "":
			texts.Set(a.Name, text)
		case a.Name == "scopes" && given.Has(a.Name):
			bad = append(bad, "Scopes: choose at least one: a key without scopes could call nothing.")
		}
	}
	for _, wrong := range operate.ReadArguments(into, texts) {
		if r.PathValue(wrong.Name) != "" {
			return arguments, fmt.Errorf("%w: %s", keystore.ErrNotFound, wrong.Text)
		}
		bad = append(bad, titles[wrong.Name]+": "+strings.TrimSuffix(wrong.Text.String(), ".")+".")
	}
	if len(bad) > 0 {
		return arguments, formError{strings.Join(bad, "\n")}
	}
	return into.Interface().(A), nil
}

// chosenScopes are the fields of a new key. Without a chosen scope, browsers send no field: the
// scopes are empty then, and not the default.
func chosenScopes(sent url.Values) url.Values {
	if len(sent["scopes"]) == 0 {
		sent.Set("scopes", "")
	}
	return sent
}

// changedTerms are the terms of a key that differ from what the page showed, which hidden fields
// repeat. The others stay as they are now: another person may have changed them since.
func changedTerms(sent url.Values) url.Values {
	changed := url.Values{}
	for _, name := range []string{"name", "scopes", "allow", "expires", "minute", "day"} {
		is := lines(sent[name])
		switch {
		case slices.Equal(is, lines(sent["was-"+name])):
		case len(is) == 0:
			emptied(name, changed)
		default:
			changed[name] = is
		}
	}
	return changed
}

// emptied adds what an emptied field of a key's terms means.
func emptied(name string, to url.Values) {
	switch name {
	case "expires":
		to.Set("noExpires", "true")
	case "allow":
		to.Set("allowAny", "true")
	case "minute", "day":
		to.Set(name, "none")
	case "scopes":
		to.Set(name, "")
	default:
		to[name] = nil
	}
}

// lines returns the lines of a field that are not empty. Browsers send CRLF.
func lines(values []string) []string {
	return strings.FieldsFunc(strings.Join(values, "\n"), func(r rune) bool { return r == '\n' || r == '\r' })
}

// limitField is a field of a form for a limit.
type limitField struct{ ID, Name, Title, Hint string }

// limitFields returns the fields of all policies, for a form whose IDs begin with the given text.
func limitFields(id, hint string) (fields []limitField) {
	for _, policy := range plan.Policies {
		fields = append(fields, limitField{id + policy, policy, "Per " + policy, hint})
	}
	return fields
}

// changing serves forms. The person is asked before something ends. Afterwards the browser is sent
// to a page that says what was done, and how many gateways have confirmed it in what time. If
// another gateway serves that page, the page is complete without its note. Only the page with a new
// token is the response itself: a token is in no address and is kept nowhere. The field once makes
// sure that loading such a page again does not create another key.
func (c *Console) changing(f form) handler {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		v.form = formPath(r)
		if err := r.ParseForm(); err != nil {
			return c.say(w, v, http.StatusBadRequest, "This form cannot be read",
				"Nothing was changed: "+err.Error()+".")
		}
		if hasToken(r.PostForm) {
			return c.say(w, v, http.StatusBadRequest, "No field of this form is for a token",
				"Nothing was changed. "+tokenPasted)
		}
		// Not the context of the request: a browser that goes away must not leave the outcome
		// unknown.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeWithin)
		defer cancel()
		arguments, err := f.read(r)
		if err != nil {
			return err
		}
		if once := r.PostForm.Get("once"); once != "" {
			v.operator.Store = v.store.Once(requestOf(v.session.ID, once))
		}
		op, err := arguments.Prepare(ctx, v.operator)
		if err != nil {
			return err
		}
		if op.Question != "" && r.PostForm.Get("sure") != "yes" {
			return c.show(w, v, http.StatusOK, "question", f.verb,
				question{op.Question, f.verb, r.URL.Path, v.form, r.PostForm})
		}
		outcome, err := op.Change(ctx)
		var unknown *keystore.UnknownError
		switch {
		case errors.Is(err, keystore.ErrRepeated):
			return c.show(w, v, http.StatusConflict, "message", "This form was sent before",
				message{Text: sentBefore, Back: v.form})
		case errors.As(err, &unknown):
			return c.showUnknown(w, v, outcome, unknown)
		case err != nil:
			return err
		}
		n := c.confirm(ctx, op, outcome)
		n.session = v.session.ID
		if made, isMade := outcome.NewKey(); isMade {
			return c.show(w, v, http.StatusOK, "token", "The new key", tokenPage{n, made})
		}
		next := v.form
		if f.next != nil {
			next = f.next(outcome)
		}
		done := rand.Text()
		c.notes.Store(done, &n)
		time.AfterFunc(notesFor, func() { c.notes.Delete(done) })
		http.Redirect(w, r, next+"?done="+done, http.StatusSeeOther)
		return nil
	}
}

// requestOf returns the request of a form that a session sends once.
func requestOf(session, once string) keystore.Request {
	sum := sha256.Sum256([]byte(session + " " + once))
	r := keystore.Request{ID: hex.EncodeToString(sum[:]), Random: make([]byte, 512)}
	_, _ = rand.Read(r.Random) // it never fails
	return r
}

const (
	sentBefore = "A form is carried out once, and nothing was changed now. If you have not seen the token of " +
		"the new key, revoke the newest key " +
		"and create another."
	notKnown = "The database did not answer when the change was stored, and it has not answered since. Once it " +
		"answers, the audit log has " +
		"the change if it was made; if it has not, repeat the change. The error: "
)

// showUnknown says that a change may have been made, and where to look. It shows the token that the
// change may have stored: otherwise it would be lost.
func (c *Console) showUnknown(
	w http.ResponseWriter, v *visit, outcome operate.Outcome, err *keystore.UnknownError,
) error {
	const title = "The change may have been made"
	c.cfg.Log.Warn("console: it is not known whether a change was made", "kind", err.Kind, "error", err)
	if made, isMade := outcome.NewKey(); isMade {
		n := note{
			Done:      title + ".",
			Confirmed: notKnown + err.Error(),
			Cure:      "The token below is valid only if the change was made.",
		}
		return c.show(w, v, http.StatusServiceUnavailable, "token", title, tokenPage{n, made})
	}
	look := url.Values{"kind": {err.Kind}}
	if !err.Key.IsZero() {
		look.Set("key", err.Key.String())
	}
	return c.show(w, v, http.StatusServiceUnavailable, "message", title,
		message{Text: notKnown + err.Error(), Back: Home + "audit?" + look.Encode()})
}

// formPath returns the path of the page with the form that a request sends: forms are sent to their
// page or to a path below it.
func formPath(r *http.Request) string {
	if at := r.URL.EscapedPath(); path.Dir(at)+"/" != Home {
		return path.Dir(at)
	}
	return r.URL.EscapedPath()
}

// question is the page that asks before something ends. Its form repeats the fields of the form
// before.
type question struct {
	Text, Verb, Path, Back string
	Fields                 url.Values
}

// tokenPage shows a new token, once.
type tokenPage struct {
	Note note
	Key  operate.KeyView
}

// note says what a form has changed.
type note struct {
	Done        string // a sentence
	Confirmed   string // by how many gateways, in what time
	Cure        string // what to do if gateways have not confirmed; may be empty
	IsConfirmed bool

	session string // whose it is
}

// confirm waits until gateways have applied a change.
func (c *Console) confirm(ctx context.Context, op operate.Operation, outcome operate.Outcome) note {
	progress := operate.Wait(ctx, c.cfg.Forms, outcome.Change, operate.UsualWait, c.cfg.Clock, operate.Sleep)
	n := note{Done: outcome.Done, Confirmed: sentence(progress.Text(op.Laggard)), IsConfirmed: progress.IsConfirmed()}
	if n.IsConfirmed || progress.Err != nil {
		return n
	}
	n.Cure = progress.Advice(func(fenced time.Duration) string { return ", in at most " + operate.Span(fenced) + "." },
		": the overview shows their lag.")
	return n
}

// sentence begins a text with a capital letter and ends it with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
