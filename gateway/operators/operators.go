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
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"petgate/gateway/quotas/authfailures"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// Root begins the path of every call.
const Root = "/api/v1"

const (
	databaseWithin = 5 * time.Second  // bounds the work of a call at the database
	changeWithin   = 10 * time.Second // bounds a change, without the waiting for gateways
	waitMax        = time.Minute
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

	comparing *semaphore.Weighted // held while a document is compared with the database
}

// New returns an API.
func New(cfg Config) *API {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Changes.Seek(changeWithin - databaseWithin)
	a := &API{
		cfg: cfg,
		mux: http.NewServeMux(),
		failures: authfailures.New(authfailures.Config{
			PerMinute: cfg.Failures, Clock: cfg.Clock, Metrics: authfailures.NewMetrics(nil),
		}),
		comparing: semaphore.NewWeighted(1),
	}
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
			a.fail(w, failure{
				status: http.StatusForbidden, code: "browser_refused",
				message: "this is the request of a browser, by its header " + name + ": only programs may call the API",
			})
			return
		}
	}
	a.mux.ServeHTTP(w, r)
}

func (a *API) noSuchCall(w http.ResponseWriter, r *http.Request) {
	a.fail(w, failure{
		status: http.StatusNotFound, code: "no_such_route",
		message: "the API has no call " + r.Method + " of this path: " + Root + "/openapi.json describes all calls",
	})
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
	body      []byte            // of the request
}

// answer is what a call answers.
type answer struct {
	body       any
	next       string // where the next page begins; empty: there is none
	isReplayed bool
	missing    *unconfirmed // nil: all gateways have confirmed the change
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
				status: http.StatusForbidden, code: "insufficient_role",
				message: fmt.Sprintf("this call needs the role %s; operator %s has the role "+
					"%s", c.role, o.Name, o.Role),
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
	body, err := c.readAll(w, r)
	if err != nil {
		return err
	}
	v.body = body
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
		// at the same time
	} else if made, err = c.serve(a, r, v, arguments.Interface()); errors.Is(err, keystore.ErrRepeated) {
		if err = v.findOnce(); err == nil {
			made, err = a.replay(r, v)
		}
	}
	if err != nil {
		return err
	}
	return made.write(w, r, c)
}

func (m answer) write(w http.ResponseWriter, r *http.Request, c *call) error {
	var text bytes.Buffer
	err := operate.WriteJSON(&text, m.body)
	status := cmp.Or(c.status, http.StatusOK)
	if err == nil && m.missing != nil {
		status = http.StatusAccepted
		m.missing.View = text.Bytes()
		text = bytes.Buffer{}
		err = json.MarshalWrite(&text, m.missing, jsontext.WithIndent("  "))
		text.WriteByte('\n')
	}
	if err != nil {
		return err
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
	_, _ = w.Write(text.Bytes())
	return nil
}

// unconfirmed is the answer of a change that some gateways have not confirmed: the members of the
// view, and its own.
type unconfirmed struct {
	View     jsontext.Value `json:",embed"`
	Gateways []string       `json:"unconfirmed"`       // that may not have applied the change
	Reason   string         `json:"unconfirmedReason"` // for people
}

// confirm waits until all gateways have applied a change, and answers. laggard is that of the
// operation.
func (a *API) confirm(r *http.Request, v *visit, change keystore.Change, laggard string, view any) answer {
	wait := v.wait.Or(operate.UsualWait)
	progress := operate.Wait(r.Context(), v.operator.Store, change, wait, a.cfg.Clock, operate.Sleep)
	made := answer{body: view}
	if !progress.IsConfirmed() {
		made.missing = &unconfirmed{
			Gateways: operate.ViewsOf(progress.Laggards, operate.GatewayName),
			Reason:   progress.Text(laggard),
		}
	}
	return made
}
