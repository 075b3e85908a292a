// Package operators is the operators' API: what keyadmin does, as HTTP calls on the admin port for
// programs. One table of all calls gives the handlers, the OpenAPI document and who may call what.
// A call does what the command does, by the same function of shared/operate, and answers with the
// JSON that keyadmin -o json prints.
//
// A program identifies itself with a token that `keyadmin operator create` prints. The token is
// looked up for every call, so its end holds at once. It is never a cookie, and what a browser
// sends is refused: no page can make a call. A change waits until all gateways have applied it.
//
// A POST with an Idempotency-Key is carried out once, however often it is sent. The token of a new
// key is made from three things: the operator's token and the Idempotency-Key, which the database
// does not have, and a salt, which it keeps for a day. So a repeated call can return the token,
// although only its hash is stored. A POST that finds nothing to change, such as a second
// suspension, is not noted: if it is repeated when there is something to change, it is carried out
// then, for the first time.
package operators

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"petgate/gateway/quotas/authfailures"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// Root begins the path of every call.
const Root = "/api/v1"

const (
	databaseWithin = 5 * time.Second  // bounds the work of a call at the database
	changeWithin   = 10 * time.Second // bounds a change, without the waiting for gateways
	waitMax        = time.Minute
	bodyBytesMax   = 64 << 10
)

// Config is the configuration of an API.
type Config struct {
	Store    *keystore.Store // with the rights of keyadmin, and connections that no request of the public port needs
	Changes  *keystore.Store // the same for changes, with connections that no other call needs
	Failures int             // how many unknown tokens a client address may try in a minute; 0: unlimited
	AdminTLS *tls.Config     // for the admin ports of other gateways
	Log      *slog.Logger
	Clock    func() time.Time // nil: time.Now
}

// API serves the calls. It is safe for concurrent use.
type API struct {
	cfg      Config
	mux      *http.ServeMux
	failures *authfailures.Guard
	known    sync.Map // SHA-256 of a token: it was valid when it was used last
}

// New returns an API.
func New(cfg Config) *API {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Changes.Seek(changeWithin - databaseWithin)
	a := &API{cfg: cfg, mux: http.NewServeMux(), failures: authfailures.New(authfailures.Config{
		PerMinute: cfg.Failures, Clock: cfg.Clock, Metrics: authfailures.NewMetrics(nil),
	})}
	document := Document()
	a.mux.HandleFunc("GET "+Root+"/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
	for i := range calls {
		a.mux.Handle(calls[i].method+" "+Root+calls[i].path, a.handler(&calls[i]))
	}
	a.mux.HandleFunc("/", a.noSuchCall)
	return a
}

// ServeHTTP serves a request whose path begins with Root.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	for name := range r.Header {
		if name == "Cookie" || name == "Origin" || strings.HasPrefix(name, "Sec-Fetch-") {
			a.fail(
				w,
				failure{
					http.StatusForbidden, "browser_refused",
					"this is the request of a browser, by its header " + name + ": only programs may call the API", "",
				},
			)
			return
		}
	}
	r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
	a.mux.ServeHTTP(w, r)
}

func (a *API) noSuchCall(w http.ResponseWriter, r *http.Request) {
	a.fail(
		w,
		failure{
			http.StatusNotFound, "no_such_route",
			"the API has no call " + r.Method + " of this path: " + Root + "/openapi.json describes all calls", "",
		},
	)
}

// visit is a call by a known operator.
type visit struct {
	ctx       context.Context
	operator  operate.Operator // its store names the operator in events
	token     string
	wait      operate.Delay
	asks      bool              // the call needs confirm=true if it takes something away
	confirmed bool              // confirm=true
	after     string            // the page begins after this row
	limit     int               // rows of a page
	once      *keystore.Request // nil: without an Idempotency-Key
	key       string            // the Idempotency-Key
}

// answer is what a call answers.
type answer struct {
	body       any
	next       string // where the next page begins; empty: there is none
	isReplayed bool
	laggards   []string // the gateways that have not confirmed the change
}

// handler serves one call.
func (a *API) handler(c *call) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{token: bearer(r), asks: c.asks}
		store, ctx, within := a.cfg.Store, r.Context(), databaseWithin
		if c.changes {
			// A program that goes away must not leave the outcome unknown.
			store, ctx, within = a.cfg.Changes, context.WithoutCancel(ctx), changeWithin
		}
		ctx, cancel := context.WithTimeout(operate.WithAdminTLS(ctx, a.cfg.AdminTLS), within)
		defer cancel()
		v.ctx = ctx
		o, err := a.authenticate(v, w, r, store)
		if err == nil && !o.Role.Allows(c.role) {
			err = failure{
				http.StatusForbidden,
				"insufficient_role",
				"this call needs the role " + string(c.role) + "; operator " + o.Name + " has the role " + string(
					o.Role,
				),
				"",
			}
		}
		if err == nil {
			v.operator = operate.Operator{Store: store.As("operator:" + o.Name), Clock: a.cfg.Clock}
			err = a.serve(w, r, v, c)
		}
		if err != nil {
			a.fail(w, err)
		}
	}
}

// serve carries out a call and writes its answer.
func (a *API) serve(w http.ResponseWriter, r *http.Request, v *visit, c *call) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return failure{http.StatusBadRequest, "bad_request", "the body cannot be read: " + err.Error(), ""}
	}
	arguments := reflect.New(c.arguments)
	if err := v.read(r, c, body, arguments.Elem()); err != nil {
		return err
	}
	if err := v.setOnce(r, c, body); err != nil {
		return err
	}
	var made answer
	if v.once != nil && v.once.Event != 0 {
		made, err = a.replay(r, v)
	} else if made, err = c.serve(a, r, v, arguments.Interface()); errors.Is(err, keystore.ErrRepeated) { // at the same time
		if err = v.findOnce(); err == nil {
			made, err = a.replay(r, v)
		}
	}
	if err != nil {
		return c.named(err)
	}
	return made.write(w, r, c)
}

func (m answer) write(w http.ResponseWriter, r *http.Request, c *call) error {
	var body bytes.Buffer
	if err := operate.WriteJSON(&body, m.body); err != nil {
		return err
	}
	text := body.Bytes()
	status := cmp.Or(c.status, http.StatusOK)
	if m.laggards != nil {
		status = http.StatusAccepted
		names, _ := json.Marshal(m.laggards) // texts: it cannot fail
		text = append(append(append(bytes.TrimSuffix(text, []byte("\n}\n")), ",\n  \"unconfirmed\": "...), names...),
			"\n}\n"...)
	}
	if m.next != "" {
		query := r.URL.Query()
		query.Set("after", m.next)
		w.Header().Set("Link", "<"+r.URL.EscapedPath()+"?"+query.Encode()+`>; rel="next"`)
	}
	if m.isReplayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
	return nil
}

var bearerForm = regexp.MustCompile(`^(?i:bearer) +(pto_[0-9A-Za-z]{38})$`)

// bearer returns the token of a request; empty: it has none, or more than one, or another kind of
// token.
func bearer(r *http.Request) string {
	fields := r.Header.Values("Authorization")
	if len(fields) != 1 {
		return ""
	}
	if match := bearerForm.FindStringSubmatch(fields[0]); match != nil {
		return match[1]
	}
	return ""
}

// authenticate finds the operator of a request. A token that was valid before is looked up even if
// its address has tried too many.
func (a *API) authenticate(
	v *visit, w http.ResponseWriter, r *http.Request, store *keystore.Store,
) (o keystore.OperatorToken, err error) {
	unknown := failure{
		http.StatusUnauthorized,
		"invalid_token",
		"this call needs the header Authorization: Bearer with the token of an operator, which `keyadmin operator create` prints",
		"",
	}
	if v.token == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="petgate operators"`)
		return o, unknown
	}
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address is one more client
	sum := sha256.Sum256([]byte(v.token))
	if _, isKnown := a.known.Load(sum); !isKnown {
		if s := a.failures.Known(peer.Addr()); s.Limit > 0 && s.Remaining == 0 {
			return o, a.tooMany(w, s)
		}
	}
	ctx, cancel := context.WithTimeout(v.ctx, databaseWithin)
	defer cancel()
	_ = store.CheckFile() // if the file was replaced, this closes the connections to the old one
	if err = store.CheckFile(); err == nil {
		o, err = store.OperatorByToken(ctx, v.token)
	}
	switch {
	case err == nil:
		a.known.Store(sum, true)
	case errors.Is(err, keystore.ErrNotFound):
		a.known.Delete(sum)
		if s, isAllowed := a.failures.Fail(peer.Addr()); !isAllowed {
			return o, a.tooMany(w, s)
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="petgate operators", error="invalid_token"`)
		unknown.message = "no operator has this token: it was revoked, has expired, or is of another installation"
		err = unknown
	}
	return o, err
}

func (a *API) tooMany(w http.ResponseWriter, s authfailures.State) error {
	w.Header().Set("Retry-After", strconv.FormatInt(max(1, (s.ReleaseAt-instant.Of(a.cfg.Clock())).Seconds()), 10))
	return failure{
		http.StatusTooManyRequests,
		"too_many_failed_attempts",
		"this address has tried too many unknown tokens: wait for as long as Retry-After says",
		"",
	}
}

// confirm waits until all gateways have applied a change, and answers.
func (a *API) confirm(r *http.Request, v *visit, change keystore.Change, view any) answer {
	progress := operate.Wait(r.Context(), v.operator.Store, change, v.wait.Or(operate.UsualWait), a.cfg.Clock,
		operate.Sleep)
	made := answer{body: view}
	if !progress.IsConfirmed() {
		made.laggards = []string{}
		for _, g := range progress.Laggards {
			made.laggards = append(made.laggards, operate.GatewayName(g))
		}
	}
	return made
}

// setOnce reads the Idempotency-Key of a change.
func (v *visit) setOnce(r *http.Request, c *call, body []byte) error {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 || !c.changes || c.method != http.MethodPost {
		return nil
	}
	v.key = keys[0]
	if len(keys) > 1 || v.key == "" || len(v.key) > 255 {
		return failure{
			http.StatusBadRequest, "invalid_request", "Idempotency-Key must be one text of 1 to 255 characters",
			"Idempotency-Key",
		}
	}
	id := hmac.New(sha256.New, []byte(v.token))
	id.Write([]byte("request " + v.key))
	asked := sha256.Sum256(slices.Concat([]byte(r.Method+" "+r.URL.EscapedPath()+"\n"), body))
	v.once = &keystore.Request{
		ID:   hex.EncodeToString(id.Sum(nil)),
		Body: hex.EncodeToString(asked[:]),
		Salt: rand.Text(),
	}
	err := v.findOnce()
	if errors.Is(err, keystore.ErrNotFound) {
		if err = v.derive(); err == nil {
			v.operator.Store = v.operator.Store.Once(*v.once)
		}
	}
	return err
}

// findOnce finds out whether the request was carried out before. Errors: keystore.ErrNotFound.
func (v *visit) findOnce() error {
	found, _, err := v.operator.Store.Request(v.ctx, v.once.ID)
	if err != nil {
		return err
	}
	if found.Body != v.once.Body {
		return failure{
			http.StatusUnprocessableEntity,
			"idempotency_key_reused",
			"another request had this Idempotency-Key: use a new one",
			"Idempotency-Key",
		}
	}
	v.once = &found
	return v.derive()
}

// derive makes what the token of a new key is made from.
func (v *visit) derive() (err error) {
	v.once.Random, err = hkdf.Key(sha256.New, []byte(v.token), []byte(v.once.Salt), "key of "+v.key, 512)
	return err
}

// replay answers a request that was carried out before: with what it has changed, as it is now.
func (a *API) replay(r *http.Request, v *visit) (answer, error) {
	_, e, err := v.operator.Store.Request(v.ctx, v.once.ID)
	if err != nil {
		return answer{}, err
	}
	view, err := v.changed(e)
	if err != nil {
		return answer{}, err
	}
	made := a.confirm(r, v, v.once.Event, view)
	made.isReplayed = true
	return made, nil
}

// changed returns the view of what an event has changed, as it is now.
func (v *visit) changed(e keystore.Event) (any, error) {
	switch {
	case e.Kind == keystore.BanAdded:
		var ban keystore.Ban
		if err := json.Unmarshal([]byte(e.After), &ban); err != nil {
			return nil, err
		}
		t, k, err := v.operator.Key(v.ctx, e.Key)
		return operate.ViewBan(ban, t.Name, k.Name), err
	case !e.Key.IsZero():
		_, k, err := v.operator.Key(v.ctx, e.Key)
		if err != nil {
			return nil, err
		}
		if e.Kind != keystore.KeyRotated {
			return v.withToken(k)
		}
		_, fresh, err := v.operator.Key(v.ctx, k.ReplacedBy)
		if err != nil {
			return nil, err
		}
		view, err := v.withToken(fresh)
		return operate.RotationView{
			KeyView:        view,
			Replaces:       k.ID.String(),
			OldGraceEndsAt: k.GraceEndsAt.String(),
			Repeated:       view.Token == "",
		}, err
	case !e.Tenant.IsZero():
		t, err := v.operator.Tenant(v.ctx, e.Tenant.String())
		return t.View(), err
	case e.Plan != "":
		p, err := v.operator.Store.Plan(v.ctx, e.Plan)
		return operate.ViewPlan(p), err
	}
	return nil, failure{
		http.StatusConflict, "conflict", "this request was carried out, and its change is no longer in the audit log",
		"",
	}
}

// withToken returns the view of a key, with its token if this request has made it.
func (v *visit) withToken(k keystore.Key) (operate.KeyView, error) {
	view, err := v.operator.ShowKey(v.ctx, k.ID)
	if err != nil {
		return view, err
	}
	token, err := v.once.Token(k.Environment)
	if err != nil {
		return view, err
	}
	if made, err := v.operator.Store.KeyByToken(v.ctx, token); err == nil && made.ID == k.ID {
		view.Token = token
	} else if err != nil && !errors.Is(err, keystore.ErrNotFound) {
		return view, err
	}
	return view, nil
}
