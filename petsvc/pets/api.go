// Package pets is the pet service: listing, adding and getting pets over HTTP, stored in the database.
//
// It does not know API keys or limits: these belong to the gateway in front of it. It knows a tenant only by the ID that the
// gateway sends, because each tenant has Idempotency-Keys of its own. An optional secret keeps other clients out. All responses
// are JSON, also the errors that fasthttp would write as text. While the database is unavailable, read-only or too busy,
// requests get a 503 with Retry-After, at once or after a short wait, and never a 500.
//
// A Service is safe for concurrent use.
package pets

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
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
	"petgate/shared/socket"
	"petgate/shared/trace"
)

// secretHeader carries the secret that the gateway and the service share.
const secretHeader = "X-Gateway-Secret"

// challenge is the WWW-Authenticate that a 401 must have (RFC 9110, section 11.6.1). Clients need an API key, which the gateway
// checks. To the gateway, a 401 of this service means that its own configuration is wrong.
const challenge = `Bearer realm="petgate"`

const requestIDHeader = "X-Request-Id"

// Limits of the server. They are wider than the gateway's: only petMax is narrower, and it is checked when the body is read.
const (
	bodyBytesMax   = 4 << 20
	headerBytesMax = 64 << 10
	connectionsMax = 1 << 20 // so high that it is never reached: fasthttp would refuse in plain text

	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second

	// Longer than the gateway keeps an idle connection: the side that sends requests has to close first.
	idleTimeout = 2 * time.Minute
)

// Config configures a Service.
type Config struct {
	// Secret is the required value of secretHeader. If it is empty, every client that reaches the listener is served.
	Secret string

	// Queue is how many requests may wait for a connection to the database. 0 lets none wait.
	Queue int

	Log       *slog.Logger
	AccessLog *slog.Logger  // one line for each request; nil = none
	Tracer    *trace.Tracer // nil = no traces
	Metrics   prometheus.Registerer
}

// Service answers requests about pets.
type Service struct {
	config   Config
	stopping <-chan struct{} // closed when the program has been asked to stop
	store    *store
	metrics  *metrics
	server   *fasthttp.Server
	draining atomic.Bool
	serving  listeners
	pages    sync.Pool
}

// Open returns a service that uses db and its maximum of open connections. In the background it migrates db and watches
// whether it is available; it need not be available yet. Shutdown ends the watch. The caller closes db. When ctx ends, the service
// serves as before, but responds to the gateway's checks that it is stopping.
func Open(ctx context.Context, db *database.DB, config Config) *Service {
	m := newMetrics(config.Metrics)
	s := &Service{config: config, stopping: ctx.Done(), metrics: m, pages: sync.Pool{New: newPage}}
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

// Ready returns nil if the service can serve, and otherwise the reason why it cannot.
func (s *Service) Ready() error { return s.store.ready() }

// Failing returns why requests have failed although the service is ready, for example because the disk is full. It is nil when a
// pet has been stored since.
func (s *Service) Failing() error { return s.store.failing() }

// Serve serves the connections of ln until Shutdown. It first waits until the database's state is known: a gateway sends
// requests as soon as it can connect, and would get a 503 for each.
func (s *Service) Serve(ln net.Listener) error {
	if !s.serving.add(ln) {
		return ln.Close()
	}
	select {
	case <-s.store.looked:
		return s.server.Serve(listener{&socket.Listener{Listener: ln, Log: s.config.Log, Failed: s.metrics.acceptFailures.Inc}})
	case <-s.store.done:
		return ln.Close()
	}
}

// Drain adds Connection: close to every response from now on.
func (s *Service) Drain() { s.draining.Store(true) }

// Shutdown closes the listeners and idle connections and waits for requests in flight until ctx ends.
func (s *Service) Shutdown(ctx context.Context) error {
	s.Drain()
	err := s.server.ShutdownWithContext(ctx)
	s.serving.close() // fasthttp does not know those that Serve has not passed on yet
	s.store.close(ctx)
	return err
}

// listeners are those that Serve was called with.
type listeners struct {
	sync.Mutex
	all     []net.Listener
	stopped bool
}

// add returns false after close.
func (l *listeners) add(ln net.Listener) bool {
	l.Lock()
	defer l.Unlock()
	if !l.stopped {
		l.all = append(l.all, ln)
	}
	return !l.stopped
}

// close closes them. Most are closed already.
func (l *listeners) close() {
	l.Lock()
	defer l.Unlock()
	l.stopped = true
	for _, ln := range l.all {
		_ = ln.Close()
	}
}

// handle serves one request.
func (s *Service) handle(rc *fasthttp.RequestCtx) {
	if string(rc.Path()) == readyPath && s.isGateway(rc) {
		s.serveReady(rc)
		return
	}
	began := time.Now()
	operation, outcome := "none", ""
	var span *trace.Span
	defer func() {
		if v := recover(); v != nil {
			s.config.Log.Error("panic", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			rc.Response.Reset()
			outcome = refuse(rc, errInternal)
		}
		s.finish(rc, span, operation, outcome, began)
	}()
	if !s.isGateway(rc) {
		rc.Response.Header.Set("WWW-Authenticate", challenge)
		outcome = refuse(rc, api.Error{
			Code: "gateway_only", Status: 401, Message: "this service serves only its gateway, which sends a secret: see PETSVC_SECRET",
		})
		return
	}
	span = s.span(rc, began)
	operation, outcome = s.route(rc, span)
}

// readyPath is what gateways check. It is neither counted nor logged, because each gateway asks once a second.
const readyPath = "/readyz"

// serveReady responds with 200 if requests should come here, and with 503 if another instance is better.
func (s *Service) serveReady(rc *fasthttp.RequestCtx) {
	reason := s.Ready()
	select {
	case <-s.stopping:
		reason = errStopping
	default:
	}
	if reason != nil {
		rc.Error(reason.Error(), fasthttp.StatusServiceUnavailable)
		return
	}
	rc.SetBodyString("ready")
}

var errStopping = errors.New("the service is stopping")

const (
	listPath  = "/v1/pets"
	petPrefix = listPath + "/"
)

// route serves a request of the gateway.
func (s *Service) route(rc *fasthttp.RequestCtx, span *trace.Span) (operation, outcome string) {
	path := rc.Path()
	isGet := rc.IsGet() || rc.IsHead()
	switch {
	case string(path) == listPath && isGet:
		return "listPets", s.list(rc, span)
	case string(path) == listPath && rc.IsPost():
		return "createPet", s.create(rc, span)
	case string(path) == listPath:
		return "none", refuseMethod(rc, "GET, HEAD, POST")
	}
	id, isPet := strings.CutPrefix(string(path), petPrefix)
	switch {
	case !isPet || id == "" || strings.Contains(id, "/"):
		return "none", refuse(rc, api.Error{Code: "no_such_route", Status: 404, Message: "there is no such path"})
	case !isGet:
		return "none", refuseMethod(rc, "GET, HEAD")
	}
	return "getPet", s.get(rc, span, id)
}

// finish counts and logs every request, also one that fasthttp could not read.
func (s *Service) finish(rc *fasthttp.RequestCtx, span *trace.Span, operation, outcome string, began time.Time) {
	took := time.Since(began)
	if s.draining.Load() {
		rc.SetConnectionClose()
	}
	s.metrics.count(operation, outcome, took, span)
	defer s.export(rc, span, operation, outcome, began.Add(took)) // last, because it ends the span
	if s.config.AccessLog == nil {
		return
	}
	// Not the target: it may contain an API key by mistake. The gateway logs the path if that is safe.
	line := []slog.Attr{
		slog.String("requestId", string(rc.Request.Header.Peek(requestIDHeader))),
		slog.String("method", string(rc.Method())),
		slog.String("operation", operation),
		slog.String("outcome", outcome),
		slog.Int("status", rc.Response.StatusCode()),
		slog.Int("bytes", len(rc.Response.Body())),
		slog.Int64("micros", took.Microseconds()),
	}
	if span != nil {
		line = append(line, slog.String("traceId", span.Trace().String()))
	}
	s.config.AccessLog.LogAttrs(context.Background(), slog.LevelInfo, "request", line...)
}

func (s *Service) isGateway(rc *fasthttp.RequestCtx) bool {
	return s.config.Secret == "" || subtle.ConstantTimeCompare(rc.Request.Header.Peek(secretHeader), []byte(s.config.Secret)) == 1
}

// handleUnreadable responds to bytes that fasthttp could not read as a request. fasthttp then closes the connection.
func (s *Service) handleUnreadable(rc *fasthttp.RequestCtx, err error) {
	e := api.Error{Code: "bad_request", Status: 400, Message: "the request is not well-formed HTTP/1.1"}
	var tooSmall *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.As(err, &tooSmall):
		e = api.Error{
			Code: "headers_too_large", Status: 431,
			Message: fmt.Sprintf("the header section is larger than %d bytes", headerBytesMax),
		}
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		e = tooLarge(bodyBytesMax)
	case errors.As(err, &network) && network.Timeout():
		e = api.Error{Code: "request_timeout", Status: 408, Message: "the request did not arrive in time"}
	}
	s.finish(rc, nil, "none", refuse(rc, e), time.Now())
}

func tooLarge(max int) api.Error {
	return api.Error{Code: "body_too_large", Status: 413, Message: fmt.Sprintf("the body is larger than %d bytes", max)}
}

func (s *Service) list(rc *fasthttp.RequestCtx, span *trace.Span) (outcome string) {
	q, f := parseQuery(rc.QueryArgs())
	if f != nil {
		return refuse(rc, api.Error{Code: "invalid_parameter", Status: 400, Message: f.message(), Details: f})
	}
	page := s.page()
	defer s.pages.Put(page)
	if err := s.store.list(span, q, page); err != nil {
		return s.fail(rc, err)
	}
	if page.more {
		rc.Response.Header.Set("Link", "<"+q.next(page.last)+`>; rel="next"`)
	}
	return answer(rc, 200, page.body)
}

func (s *Service) create(rc *fasthttp.RequestCtx, span *trace.Span) (outcome string) {
	if contentType := string(rc.Request.Header.ContentType()); !isJSON(contentType) {
		return refuse(rc, api.Error{
			Code: "unsupported_media_type", Status: 415,
			Message: fmt.Sprintf("Content-Type is %.100q: send Content-Type: application/json", contentType),
		})
	}
	if len(rc.Request.Header.ContentEncoding()) != 0 {
		return refuse(rc, api.Error{
			Code: "unsupported_media_type", Status: 415, Message: "the body has a Content-Encoding: send it without one",
		})
	}
	body := rc.Request.Body()
	if len(body) > petMax {
		return refuse(rc, tooLarge(petMax))
	}
	p, f := decode(body)
	if f != nil {
		e := api.Error{Code: "invalid_request", Status: 400, Message: f.message()}
		if f.kind != "" {
			e.Details = f
		}
		return refuse(rc, e)
	}
	outcome = "created"
	var stored Pet
	var err error
	if lines := rc.Request.Header.PeekAll(api.KeyHeader); len(lines) == 0 {
		stored, err = s.store.add(span, p)
	} else {
		key, f := parseKey(lines)
		if f != nil {
			return refuse(rc, api.Error{Code: "invalid_parameter", Status: 400, Message: f.message(), Details: f})
		}
		isReplay := false
		stored, isReplay, err = s.store.addOnce(span, p, newRequest(rc.Request.Header.Peek(tenantHeader), key, p))
		if isReplay {
			outcome = "replayed"
		}
	}
	if err != nil {
		return s.fail(rc, err)
	}
	page := s.page()
	defer s.pages.Put(page)
	page.body = stored.AppendJSON(page.body)
	rc.Response.Header.Set("Location", petPrefix+strconv.FormatInt(stored.ID, 10))
	if outcome == "replayed" {
		rc.Response.Header.Set(replayedHeader, "true")
	}
	answer(rc, 201, page.body)
	return outcome
}

func (s *Service) get(rc *fasthttp.RequestCtx, span *trace.Span, text string) (outcome string) {
	if !isInteger(text) {
		f := &fault{"parameter", "petId", "must be an integer"}
		return refuse(rc, api.Error{Code: "invalid_parameter", Status: 400, Message: f.message(), Details: f})
	}
	page := s.page()
	defer s.pages.Put(page)
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		err = errNotFound // no pet has such an id
	} else {
		err = s.store.get(span, id, page)
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

// fail responds to an error of the store.
func (s *Service) fail(rc *fasthttp.RequestCtx, err error) (outcome string) {
	e := api.Error{Code: "database_unavailable", Status: 503}
	switch {
	case errors.Is(err, errNotFound):
		return refuse(rc, api.Error{Code: "pet_not_found", Status: 404, Message: "no pet has this id"})
	case errors.Is(err, errKeyReused):
		return refuse(rc, api.Error{
			Code: "idempotency_key_reused", Status: 422,
			Message: "this Idempotency-Key was sent with another pet in the last 24 hours: use a new key for a new pet",
		})
	case errors.Is(err, errInProgress):
		e.Code, e.Status = "request_in_progress", 409
		e.Message = "a request with this Idempotency-Key is in progress: send it again to get its response"
	case errors.Is(err, errOverloaded):
		e.Code, e.Message = "overloaded", "too many requests are waiting; nothing was stored, try again"
	case errors.Is(err, errUncertain):
		e.Code, e.Message = "outcome_unknown", "the connection to the database broke while the pet was being stored: "+
			"with an Idempotency-Key, send it again; without one, list the pets before you do"
	case errors.Is(err, errReadOnly):
		e.Message = "the database is read-only at the moment; nothing was stored, try again later"
	case errors.Is(err, errUnavailable):
		e.Message = "the database is unavailable at the moment; nothing was stored, try again"
	default:
		s.config.Log.Error("request failed", "error", err.Error(),
			"requestId", string(rc.Request.Header.Peek(requestIDHeader)))
		return refuse(rc, errInternal)
	}
	rc.Response.Header.Set("Retry-After", "1")
	return refuse(rc, e)
}

var errInternal = api.Error{Code: "internal", Status: 500, Message: "internal error: the request may have been carried out; the error has been logged"}

func refuse(rc *fasthttp.RequestCtx, e api.Error) (outcome string) {
	api.WriteError(rc, e)
	return e.Code
}

func refuseMethod(rc *fasthttp.RequestCtx, allow string) (outcome string) {
	rc.Response.Header.Set("Allow", allow)
	return refuse(rc, api.Error{
		Code: "method_not_allowed", Status: 405, Message: "this path does not have this method. Its methods are " + allow,
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
