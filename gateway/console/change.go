package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// changeWithin bounds a change and the waiting for gateways.
const changeWithin = 2 * databaseWithin

// onceBytesMax bounds what is kept of the name of a form, which is shorter.
const onceBytesMax = 64

// form is a form that an open session has sent. Its methods read fields and note each mistake.
type form struct {
	*visit
	r   *http.Request
	bad []string // what is wrong, as sentences
}

// mistakes returns a formError with everything that is wrong, or nil.
func (f *form) mistakes() error {
	if len(f.bad) == 0 {
		return nil
	}
	return formError{strings.Join(f.bad, "\n")}
}

// formError is what is wrong in a form, a line for each mistake: nothing was tried.
type formError struct{ text string }

func (e formError) Error() string { return e.text }

func (f *form) reject(field string, err error) {
	if err != nil {
		f.bad = append(f.bad, field+": "+err.Error()+".")
	}
}

func (f *form) value(name string) string { return strings.TrimSpace(f.r.PostForm.Get(name)) }

func (f *form) text(name, title string, runesMax int) string {
	text := f.value(name)
	f.reject(title, keystore.CheckText(text, runesMax))
	return text
}

// optional is text for a field that may be empty.
func (f *form) optional(name, title string, runesMax int) string {
	if f.value(name) == "" {
		return ""
	}
	return f.text(name, title, runesMax)
}

// isChanged reports whether a field differs from what the page showed, which a hidden field repeats.
func (f *form) isChanged(name string) bool {
	lines := func(values []string) []string { return strings.FieldsFunc(strings.Join(values, "\n"), isLineEnd) }
	return !slices.Equal(lines(f.r.PostForm[name]), lines(f.r.PostForm["was-"+name]))
}

// isLineEnd reports whether a character ends a line. Browsers send CRLF.
func isLineEnd(r rune) bool { return r == '\n' || r == '\r' }

// limits reads a limit of each policy.
func (f *form) limits(parse func(string) (int64, error)) (l plan.Limits) {
	for _, policy := range plan.Policies {
		*l.At(policy) = f.limit(policy, "Per "+policy, parse)
	}
	return l
}

// limit reads a limit; 0: the field is empty.
func (f *form) limit(name, title string, parse func(string) (int64, error)) (n int64) {
	if text := f.value(name); text != "" {
		var err error
		n, err = parse(text)
		f.reject(title, err)
	}
	return n
}

// limitField is a field of a form that limits reads.
type limitField struct{ ID, Name, Title, Hint string }

// limitFields returns the fields of all policies, for a form whose IDs begin with the given text.
func limitFields(id, hint string) (fields []limitField) {
	for _, policy := range plan.Policies {
		fields = append(fields, limitField{id + policy, policy, "Per " + policy, hint})
	}
	return fields
}

// period reads a duration of at least a second.
func (f *form) period(name, title string) time.Duration {
	period, err := operate.ParsePeriod(f.value(name))
	f.reject(title, err)
	return period
}

// moment reads an instant in the future. Empty: 0.
func (f *form) moment(name, title string, now instant.Millis) instant.Millis {
	if f.value(name) == "" {
		return 0
	}
	moment, err := operate.ParseMoment(f.value(name))
	at := instant.Millis(0)
	if err == nil {
		at, err = moment.After(now)
	}
	f.reject(title, err)
	return at
}

// scopes reads the boxes that are ticked. At least one must be.
func (f *form) scopes() apikey.Scopes {
	names := f.r.PostForm["scope"]
	if len(names) == 0 {
		f.reject("Scopes", errors.New("choose at least one: a key without scopes could call nothing"))
		return ""
	}
	scopes, err := apikey.ParseScopes(names)
	f.reject("Scopes", err)
	return scopes
}

// blocks reads CIDR blocks, separated by spaces or lines. None: from anywhere.
func (f *form) blocks() (blocks []netip.Prefix) {
	for text := range strings.FieldsSeq(f.r.PostForm.Get("allow")) {
		block, err := operate.ParseBlock(text)
		f.reject("Allowed from", err)
		blocks = append(blocks, block)
	}
	return blocks
}

// prepared is a change that a form asks for.
type prepared struct {
	operate.Operation
	title string // of the page with the question: "Suspend acme"
	verb  string // of the button that answers the question: "Suspend"
	ends  bool   // what the form changes does not exist afterwards
	back  string // the path of the page to show afterwards; empty: that of the tenant which was created
}

// changing serves forms. prepare finds what a form asks for. The person is asked before something ends. Afterwards the browser is sent
// to a page that says what was done, and how many gateways have confirmed it in what time. Only the page with a new token is the
// response itself: a token is in no address and is kept nowhere. The field once makes sure that loading such a page again does not
// create another key.
func (c *Console) changing(prepare func(context.Context, *form) (prepared, error)) http.HandlerFunc {
	return c.inSession(func(w http.ResponseWriter, r *http.Request, v *visit) error {
		f := &form{visit: v, r: r}
		v.form = formPath(r)
		if err := r.ParseForm(); err != nil {
			return c.say(w, v, http.StatusBadRequest, "This form cannot be read", "Nothing was changed: "+err.Error()+".")
		}
		if !isText(r.PostForm) {
			return c.say(w, v, http.StatusBadRequest, "This form cannot be read", "Nothing was changed. A field contains bytes that are not text.")
		}
		if hasToken(r.PostForm) {
			return c.say(w, v, http.StatusBadRequest, "No field of this form is for a token", "Nothing was changed. "+tokenPasted)
		}
		// Not the context of the request: a browser that goes away must not leave the outcome unknown.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeWithin)
		defer cancel()
		p, err := prepare(ctx, f)
		if err = cmp.Or(f.mistakes(), err); err != nil {
			return err
		}
		if p.Question != "" && f.value("sure") != "yes" {
			return c.show(w, v, http.StatusOK, "question", p.title, question{p.Question, p.verb, r.URL.Path, p.back, r.PostForm})
		}
		once := f.value("once")
		if len(once) > onceBytesMax {
			return formError{"The form is damaged."}
		}
		if once != "" && !c.notes.add(once, note{session: v.session.ID}) {
			return c.show(w, v, http.StatusConflict, "message", "This form was sent before", message{Text: sentBefore, Back: p.back})
		}
		outcome, err := p.Change(ctx)
		var unknown *keystore.UnknownError
		if errors.As(err, &unknown) {
			// The note stays: if the change was made, the same form must not make it again.
			return c.showUnknown(w, v, outcome, unknown)
		}
		if err != nil {
			c.notes.remove(once)
			return err
		}
		n := c.confirm(ctx, p, outcome)
		if made, isMade := newToken(outcome.View); isMade {
			return c.show(w, v, http.StatusOK, "token", "The new key", tokenPage{n, made})
		}
		if made, isTenant := outcome.View.(operate.TenantView); isTenant && !p.ends {
			p.back = tenantPath(made.ID)
		}
		http.Redirect(w, r, p.back+"?done="+c.notes.keep(v.session.ID, n), http.StatusSeeOther)
		return nil
	})
}

const (
	sentBefore = "A form is carried out once, and nothing was changed now. If you have not seen the token of the new key, revoke the newest key " +
		"and create another."
	notKnown = "The database did not answer when the change was stored, and it has not answered since. Once it answers, the audit log has " +
		"the change if it was made; if it has not, repeat the change. The error: "
)

// showUnknown says that a change may have been made, and where to look. It shows the token that the change may have stored: otherwise
// it would be lost.
func (c *Console) showUnknown(w http.ResponseWriter, v *visit, outcome operate.Outcome, err *keystore.UnknownError) error {
	const title = "The change may have been made"
	c.cfg.Log.Warn("console: it is not known whether a change was made", "kind", err.Kind, "error", err)
	if made, isMade := newToken(outcome.View); isMade {
		n := note{Done: title + ".", Confirmed: notKnown + err.Error(), Cure: "The token below is valid only if the change was made."}
		return c.show(w, v, http.StatusServiceUnavailable, "token", title, tokenPage{n, made})
	}
	look := url.Values{"kind": {err.Kind}}
	if !err.Key.IsZero() {
		look.Set("key", err.Key.String())
	}
	return c.show(w, v, http.StatusServiceUnavailable, "message", title, message{Text: notKnown + err.Error(), Back: Home + "audit?" + look.Encode()})
}

// formPath returns the path of the page with the form that a request sends: forms are sent to their page or to a path below it.
func formPath(r *http.Request) string {
	if at := r.URL.EscapedPath(); path.Dir(at)+"/" != Home {
		return path.Dir(at)
	}
	return r.URL.EscapedPath()
}

// question is the page that asks before something ends. Its form repeats the fields of the form before.
type question struct {
	Text, Verb, Path, Back string
	Fields                 url.Values
}

// tokenPage shows a new token, once.
type tokenPage struct {
	Note note
	Key  operate.KeyView
}

// newToken returns the view of a new key, if the outcome has its token.
func newToken(view any) (operate.KeyView, bool) {
	switch v := view.(type) {
	case operate.KeyView:
		return v, v.Token != ""
	case operate.Rotation:
		return v.KeyView, v.Token != ""
	}
	return operate.KeyView{}, false
}

// note says what a form has changed.
type note struct {
	Done        string // a sentence
	Confirmed   string // by how many gateways, in what time
	Cure        string // what to do if gateways have not confirmed; may be empty
	IsConfirmed bool

	session string // whose it is
	number  int    // grows from note to note
}

// confirm waits until gateways have applied a change.
func (c *Console) confirm(ctx context.Context, p prepared, outcome operate.Outcome) note {
	waiter := operate.Waiter{Registry: c.cfg.Forms, Clock: c.cfg.Clock, Sleep: operate.Sleep}
	progress := waiter.Wait(ctx, outcome.Change, operate.Patience{})
	n := note{Done: outcome.Done, Confirmed: sentence(progress.Text(p.Laggard)), IsConfirmed: progress.IsConfirmed()}
	if n.IsConfirmed || progress.Err != nil {
		return n
	}
	n.Cure = progress.Advice(func(fenced time.Duration) string { return ", in at most " + operate.Span(fenced) + "." }, ": the overview shows their lag.")
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

// notesMax is how many notes are kept. A browser reads its note at once.
const notesMax = 1000

// notes keeps what forms have changed until browsers ask for the pages that say so. Reading a note does not remove it, so a page can be
// loaded again. If another gateway serves that page, the page is complete without its note. It is safe for concurrent use.
type notes struct {
	mu    sync.Mutex
	byID  map[string]note
	added int
}

// keep returns the ID of a note of a session.
func (n *notes) keep(session string, kept note) (id string) {
	id, kept.session = rand.Text(), session
	n.add(id, kept)
	return id
}

// add keeps a note under an ID, and drops the oldest one if there are too many. It reports whether the ID is a new one.
func (n *notes) add(id string, kept note) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, isKept := n.byID[id]; isKept {
		return false
	}
	if n.byID == nil {
		n.byID = map[string]note{}
	}
	n.added++
	kept.number = n.added
	n.byID[id] = kept
	maps.DeleteFunc(n.byID, func(_ string, other note) bool { return other.number <= n.added-notesMax })
	return true
}

// remove drops a note.
func (n *notes) remove(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byID, id)
}

// of returns the note with an ID, if the session has it.
func (n *notes) of(session, id string) *note {
	n.mu.Lock()
	defer n.mu.Unlock()
	if kept, ok := n.byID[id]; ok && kept.session == session && kept.Done != "" {
		return &kept
	}
	return nil
}
