// Package pets is the pet service: listing, adding and getting pets over HTTP, stored in the database.
//
// It knows nothing of keys, tenants and limits: the gateway in front of it does, and an optional secret between the two
// keeps everybody else out. Its answers are JSON, errors included, also those that fasthttp would write as text. A
// database that is away, read-only or too busy is a 503 with Retry-After, at once or after a short wait, never a 500.
//
// A Service is safe for concurrent use.
package pets

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"petgate/shared/api"
	"petgate/shared/database"
)

// SecretHeader carries the secret that the gateway and the service share.
const SecretHeader = "X-Gateway-Secret"

const requestIDHeader = "X-Request-Id"

// Limits of the server. All are wider than the gateway's, so that what the gateway lets pass is never refused here.
const (
	bodyBytesMax   = 4 << 20
	headerBytesMax = 64 << 10
	connectionsMax = 1 << 20 // fasthttp answers in plain text beyond it, so it is out of reach

	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second

	// Longer than the gateway keeps an idle connection: the side that sends requests has to be the one that closes.
	idleTimeout = 2 * time.Minute
)

// Config says how a Service serves.
type Config struct {
	// Secret is what SecretHeader must carry. Empty: whoever reaches the listener is served, so it must be out of
	// others' reach.
	Secret string

	// Queue is how many requests may wait for a connection to the database. More wait longer under overload; 0 lets
	// none wait.
	Queue int

	Log       *slog.Logger
	AccessLog *slog.Logger // one line for each request; nil = none
	Metrics   prometheus.Registerer
}

// Service answers requests about pets.
type Service struct {
	config   Config
	store    *store
	metrics  *metrics
	server   *fasthttp.Server
	draining atomic.Bool
	pages    sync.Pool
}

// Open returns a service on db, whose maximum of open connections it makes use of. In the background it migrates db and
// keeps looking after it, also when it is away now. Shutdown ends that; closing db is the caller's.
func Open(ctx context.Context, db *database.DB, config Config) *Service {
	m := newMetrics(config.Metrics)
	s := &Service{config: config, metrics: m, pages: sync.Pool{New: newPage}}
	s.store = openStore(ctx, db, config.Queue, config.Log, m)
	watchStore(config.Metrics, s.store)
	s.server = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.handleUnreadable,
		Logger:                       slog.NewLogLogger(config.Log.Handler(), slog.LevelDebug),
		Concurrency:                  connectionsMax,
		ReadBufferSize:               headerBytesMax,
		MaxRequestBodySize:           bodyBytesMax,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		CloseOnShutdown:              true,
	}
	return s
}

// Ready returns nil when the service can serve, else why it cannot.
func (s *Service) Ready() error { return s.store.ready() }

// Serve serves the connections of ln until Shutdown. The first ones wait a moment, until it is known whether the database
// answers: a gateway sends requests as soon as it can connect, and would get a 503 for each.
func (s *Service) Serve(ln net.Listener) error {
	select {
	case <-s.store.looked:
		return s.server.Serve(listener{ln})
	case <-s.store.done:
		return ln.Close()
	}
}

// Drain makes every answer from now on ask for its connection to be closed.
func (s *Service) Drain() { s.draining.Store(true) }

// Shutdown closes the listeners and idle connections and waits for requests in flight until ctx ends.
func (s *Service) Shutdown(ctx context.Context) error {
	s.Drain()
	err := s.server.ShutdownWithContext(ctx)
	s.store.close(ctx)
	return err
}

// handle answers one request.
func (s *Service) handle(rc *fasthttp.RequestCtx) {
	began := time.Now()
	operation, outcome := "none", ""
	defer func() {
		if v := recover(); v != nil {
			s.config.Log.Error("panic", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			rc.Response.Reset()
			outcome = refuse(rc, errInternal)
		}
		s.finish(rc, operation, outcome, began)
	}()
	if s.config.Secret != "" && !s.isGateway(rc) {
		outcome = refuse(rc, api.Error{Code: "gateway_only", Status: 403, Message: "this service answers only its gateway"})
		return
	}
	operation, outcome = s.route(rc)
}

const (
	listPath  = "/v1/pets"
	petPrefix = listPath + "/"
)

// route answers a request that may be answered.
func (s *Service) route(rc *fasthttp.RequestCtx) (operation, outcome string) {
	path := rc.Path()
	isGet := rc.IsGet() || rc.IsHead()
	switch {
	case string(path) == listPath && isGet:
		return "listPets", s.list(rc)
	case string(path) == listPath && rc.IsPost():
		return "createPet", s.create(rc)
	case string(path) == listPath:
		return "none", refuseMethod(rc, "GET, HEAD, POST")
	}
	id, isPet := strings.CutPrefix(string(path), petPrefix)
	switch {
	case !isPet || id == "" || strings.Contains(id, "/"):
		return "none", refuse(rc, api.Error{Code: "no_such_route", Status: 404, Message: "there is nothing at this path"})
	case !isGet:
		return "none", refuseMethod(rc, "GET, HEAD")
	}
	return "getPet", s.get(rc, id)
}

// finish ends every request, also one that fasthttp could not read.
func (s *Service) finish(rc *fasthttp.RequestCtx, operation, outcome string, began time.Time) {
	took := time.Since(began)
	if s.draining.Load() {
		rc.SetConnectionClose()
	}
	s.metrics.count(operation, outcome, took)
	if s.config.AccessLog == nil {
		return
	}
	// Not the target: a client may have put its API key there by mistake, and the gateway's line has the path, if that is safe.
	s.config.AccessLog.LogAttrs(context.Background(), slog.LevelInfo, "request",
		slog.String("requestId", string(rc.Request.Header.Peek(requestIDHeader))),
		slog.String("method", string(rc.Method())),
		slog.String("operation", operation),
		slog.String("outcome", outcome),
		slog.Int("status", rc.Response.StatusCode()),
		slog.Int("bytes", len(rc.Response.Body())),
		slog.Int64("micros", took.Microseconds()),
	)
}

func (s *Service) isGateway(rc *fasthttp.RequestCtx) bool {
	return subtle.ConstantTimeCompare(rc.Request.Header.Peek(SecretHeader), []byte(s.config.Secret)) == 1
}

// handleUnreadable answers what fasthttp could not read as a request. The connection is closed after it.
func (s *Service) handleUnreadable(rc *fasthttp.RequestCtx, err error) {
	e := api.Error{Code: "bad_request", Status: 400, Message: "the request is not well-formed HTTP/1.1"}
	var tooSmall *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.As(err, &tooSmall):
		e = api.Error{
			Code: "headers_too_large", Status: 431,
			Message: fmt.Sprintf("a header section has at most %d bytes", headerBytesMax),
		}
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		e = api.Error{Code: "body_too_large", Status: 413, Message: fmt.Sprintf("a body has at most %d bytes", bodyBytesMax)}
	case errors.As(err, &network) && network.Timeout():
		e = api.Error{Code: "request_timeout", Status: 408, Message: "the request did not arrive in time"}
	}
	s.finish(rc, "none", refuse(rc, e), time.Now())
}

func (s *Service) list(rc *fasthttp.RequestCtx) (outcome string) {
	q, f := parseQuery(rc.QueryArgs())
	if f != nil {
		return refuse(rc, api.Error{Code: "invalid_parameter", Status: 400, Message: f.message(), Details: f})
	}
	page := s.page()
	defer s.pages.Put(page)
	if err := s.store.list(q, page); err != nil {
		return s.fail(rc, err)
	}
	if page.more {
		rc.Response.Header.Set("Link", "<"+q.next(page.last)+`>; rel="next"`)
	}
	return answer(rc, 200, page.body)
}

func (s *Service) create(rc *fasthttp.RequestCtx) (outcome string) {
	if !isJSON(string(rc.Request.Header.ContentType())) || len(rc.Request.Header.ContentEncoding()) != 0 {
		return refuse(rc, api.Error{
			Code: "unsupported_media_type", Status: 415,
			Message: "send the pet as application/json, without a Content-Encoding",
		})
	}
	p, f := decode(rc.Request.Body())
	if f != nil {
		e := api.Error{Code: "invalid_request", Status: 400, Message: f.message()}
		if f.kind != "" {
			e.Details = f
		}
		return refuse(rc, e)
	}
	stored, err := s.store.add(p)
	if err != nil {
		return s.fail(rc, err)
	}
	page := s.page()
	defer s.pages.Put(page)
	page.body = stored.AppendJSON(page.body)
	rc.Response.Header.Set("Location", petPrefix+strconv.FormatInt(stored.ID, 10))
	answer(rc, 201, page.body)
	return "created"
}

func (s *Service) get(rc *fasthttp.RequestCtx, text string) (outcome string) {
	if !isInteger(text) {
		f := &fault{"parameter", "petId", "must be an integer"}
		return refuse(rc, api.Error{Code: "invalid_parameter", Status: 400, Message: f.message(), Details: f})
	}
	page := s.page()
	defer s.pages.Put(page)
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		err = errNotFound // an integer that no pet can have
	} else {
		err = s.store.get(id, page)
	}
	if err != nil {
		return s.fail(rc, err)
	}
	return answer(rc, 200, page.body)
}

func (s *Service) page() *page {
	p := s.pages.Get().(*page)
	p.reset()
	return p
}

// fail answers for an error of the store.
func (s *Service) fail(rc *fasthttp.RequestCtx, err error) (outcome string) {
	e := api.Error{Code: "database_unavailable", Status: 503}
	switch {
	case errors.Is(err, errNotFound):
		return refuse(rc, api.Error{Code: "pet_not_found", Status: 404, Message: "no pet has this id"})
	case errors.Is(err, errOverloaded):
		e.Code, e.Message = "overloaded", "too many requests are waiting; nothing was stored, try again"
	case errors.Is(err, errUncertain):
		e.Message = "the database was lost while it stored the pet: list the pets before you send it again"
	case errors.Is(err, errReadOnly):
		e.Message = "pets can only be read now; nothing was stored, try again later"
	case errors.Is(err, errUnavailable):
		e.Message = "the pets cannot be reached now; nothing was stored, try again"
	default:
		s.config.Log.Error("request failed", "error", err.Error(),
			"requestId", string(rc.Request.Header.Peek(requestIDHeader)))
		return refuse(rc, errInternal)
	}
	rc.Response.Header.Set("Retry-After", "1")
	return refuse(rc, e)
}

var errInternal = api.Error{Code: "internal", Status: 500, Message: "a fault of the service; it has been logged"}

func refuse(rc *fasthttp.RequestCtx, e api.Error) (outcome string) {
	api.WriteError(rc, e)
	return e.Code
}

func refuseMethod(rc *fasthttp.RequestCtx, allow string) (outcome string) {
	rc.Response.Header.Set("Allow", allow)
	return refuse(rc, api.Error{
		Code: "method_not_allowed", Status: 405, Message: "this path has other methods: " + allow,
	})
}

func answer(rc *fasthttp.RequestCtx, status int, body []byte) (outcome string) {
	rc.Response.SetStatusCode(status)
	rc.Response.Header.SetContentType("application/json")
	rc.Response.SetBody(body) // copies
	return "ok"
}

// isJSON reports whether a Content-Type is absent or application/json with any parameters.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.Trim(media, " \t")
	return contentType == "" || strings.EqualFold(media, "application/json")
}

// query is what a list is asked for.
type query struct {
	after    int64 // the id after which the page begins
	limit    int64
	hasLimit bool
	status   Status // empty = any
}

const (
	limitDefault = 20
	limitMax     = 100
)

// parseQuery reads the parameters of a list. Unknown ones are ignored, known ones come once and are not empty.
func parseQuery(args *fasthttp.Args) (query, *fault) {
	q := query{limit: limitDefault, after: math.MinInt64}
	var seen [3]bool
	for name, value := range args.All() {
		var err error
		var is int
		switch string(name) {
		case "limit":
			is = 0
			q.limit, err = parseInteger(string(value))
			q.hasLimit = true
			if err != nil || q.limit < 1 || q.limit > limitMax {
				return q, &fault{"parameter", "limit", fmt.Sprintf("must be an integer from 1 to %d", limitMax)}
			}
		case "after":
			is = 1
			if q.after, err = parseInteger(string(value)); err != nil {
				return q, &fault{"parameter", "after", "must be an integer of 64 bits: the id of a pet"}
			}
		case "status":
			is = 2
			if q.status = Status(value); !q.status.isKnown() {
				return q, &fault{"parameter", "status", "must be available, pending or sold"}
			}
		default:
			continue
		}
		if seen[is] {
			return q, &fault{"parameter", string(name), "must not be repeated"}
		}
		seen[is] = true
	}
	return q, nil
}

// next returns the target of the page that begins after the given id.
func (q query) next(after int64) string {
	target := make([]byte, 0, 64)
	target = append(target, listPath+"?"...)
	if q.hasLimit {
		target = append(strconv.AppendInt(append(target, "limit="...), q.limit, 10), '&')
	}
	if q.status != "" {
		target = append(append(append(target, "status="...), q.status...), '&')
	}
	return string(strconv.AppendInt(append(target, "after="...), after, 10))
}

// parseInteger is strconv.ParseInt without the plus sign that it allows.
func parseInteger(text string) (int64, error) {
	if !isInteger(text) {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}

func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return digits != ""
}
