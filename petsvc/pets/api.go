// Package pets is the pet service: listing, adding and getting pets over HTTP, stored in the
// database.
//
// It does not know API keys or limits: these belong to the gateway in front of it. It knows a
// tenant only by the ID that the gateway sends, because each tenant has Idempotency-Keys of its
// own. An optional secret keeps other clients out. All responses are JSON, also the errors that
// fasthttp would write as text. While the database is unavailable, read-only or too busy, requests
// get a 503 with Retry-After, at once or after a short wait, and never a 500.
//
// A Service is safe for concurrent use.
package pets

import (
	"context"
	"crypto/subtle"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fasthttp/router"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"petgate/shared/api"
	"petgate/shared/api/code"
	"petgate/shared/database"
	"petgate/shared/service"
	"petgate/shared/socket"
	"petgate/shared/trace"
)

const requestIDHeader = "X-Request-Id" // names a request in the logs of gateway and service

const headerBytesMax = 64 << 10

//go:embed api.go
var source string

// Config configures a Service: settings of the program, and fields that only programs set.
type Config struct {
	// Secret that requests must have in the header X-Gateway-Secret. Gateways with the same
	// GATEWAY_UPSTREAM_SECRET send it. Empty: all clients that reach the address are served.
	Secret service.Secret `env:"PETSVC_SECRET"`

	// Requests that may wait for a connection, for up to a second. Further requests get 503.
	Queue int `env:"PETSVC_QUEUE" default:"512" placeholder:"N"`

	// Longest request body. The gateway's --body-bytes-max applies first.
	BodyBytesMax int `env:"PETSVC_BODY_BYTES_MAX" default:"65536" placeholder:"N"`

	Log       *slog.Logger          `kong:"-"`
	AccessLog *slog.Logger          `kong:"-"` // one line for each request; nil = none
	Tracer    *trace.Tracer         `kong:"-"` // nil = no traces
	Metrics   prometheus.Registerer `kong:"-"`
}

// Source implements service.Described.
func (*Config) Source() string { return source }

// Service answers requests about pets.
type Service struct {
	config   Config
	stopping context.Context // ends when the program has been asked to stop
	store    *store
	metrics  metrics
	server   *fasthttp.Server
	draining atomic.Bool

	router             *router.Router
	strangers, unknown fasthttp.RequestHandler // of requests that have no operation
}

// Open returns a service that uses db and its maximum of open connections. In the background it
// migrates db and watches whether it is available; it need not be available yet. Open waits at most
// a second for it. Shutdown ends the watch. The caller closes db. When ctx ends, the service serves
// as before, but responds to the gateway's checks that it is stopping.
func Open(ctx context.Context, db *database.DB, config Config) *Service {
	s := &Service{config: config, stopping: ctx, store: openStore(ctx, db, config.Queue, config.Log)}
	s.metrics = newMetrics(config.Metrics, s.store)
	s.route()
	// Its limits are wider than the gateway's. The idle timeout is longer too: the side that sends
	// requests has to close first. A body is read whole also if it is refused.
	s.server = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.handleUnreadable,
		Logger:                       slog.NewLogLogger(config.Log.Handler(), slog.LevelDebug),
		Concurrency:                  1 << 20, // so high that it is never reached: fasthttp would refuse in plain text
		ReadBufferSize:               headerBytesMax,
		MaxRequestBodySize:           max(4<<20, config.BodyBytesMax),
		ReadTimeout:                  30 * time.Second,
		WriteTimeout:                 30 * time.Second,
		IdleTimeout:                  2 * time.Minute,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		CloseOnShutdown:              true,
	}
	return s
}

// Health returns why the database is unavailable, or nil.
func (s *Service) Health() error {
	if fault := s.store.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}

// Serve serves the connections of ln until Shutdown.
func (s *Service) Serve(ln net.Listener) error {
	defer context.AfterFunc(s.store.life, func() { _ = ln.Close() })() // if fasthttp's Shutdown came before its Serve
	return s.server.Serve(&socket.Listener{Listener: ln, Log: s.config.Log, Failed: s.metrics.acceptFailures.Inc})
}

// Drain adds Connection: close to every response from now on.
func (s *Service) Drain() { s.draining.Store(true) }

// Shutdown closes the listeners and idle connections and waits for requests in flight until ctx
// ends.
func (s *Service) Shutdown(ctx context.Context) error {
	s.Drain()
	err := s.server.ShutdownWithContext(ctx)
	s.store.stop()
	return err
}

func newRefusal(c code.Code, message string) *api.Error {
	return &api.Error{Status: c.Status, Code: c.Name, Message: message}
}

func invalidBody(text string) *api.Error { return newRefusal(code.InvalidRequest, "the body "+text) }

func invalidMember(name, text string) *api.Error {
	return invalid(code.InvalidRequest, "member", name, text)
}

func invalidParameter(name, text string) *api.Error {
	return invalid(code.InvalidParameter, "parameter", name, text)
}

func invalid(c code.Code, kind, name, text string) *api.Error {
	r := newRefusal(c, fmt.Sprintf("the %s %q %s", kind, name, text))
	r.Details = api.Named{Kind: kind, Name: name}
	return r
}

var (
	errInternal = newRefusal(code.Internal,
		"internal error: the request may have been carried out; the error has been logged")
	errStranger = newRefusal(code.GatewayOnly,
		"this service serves only its gateway, which sends a secret: see PETSVC_SECRET")
	errNoSuchRoute = newRefusal(code.NoSuchRoute, "there is no such path")
	errEncoded     = newRefusal(code.UnsupportedMediaType, "the body has a Content-Encoding: send it without one")
	errMalformed   = newRefusal(code.BadRequest, "the request is not well-formed HTTP/1.1")
	errLongHead    = newRefusal(code.HeadersTooLarge,
		fmt.Sprintf("the header section is larger than %d bytes", headerBytesMax))
	errSlow = newRefusal(code.RequestTimeout, "the request did not arrive in time")
)

func tooLarge(max int) *api.Error {
	return newRefusal(code.BodyTooLarge, fmt.Sprintf("the body is larger than %d bytes", max))
}

// handle serves one request. The router gets the decoded path: its own handler would match the path
// as it was sent, and redirect paths that are nearly one of its own.
func (s *Service) handle(rc *fasthttp.RequestCtx) {
	path := string(rc.Path())
	switch operation, _ := s.router.Lookup(string(rc.Method()), path, rc); {
	case !s.isGateway(rc):
		s.strangers(rc)
	case path == readyPath:
		s.serveReady(rc) // neither counted nor logged: each gateway sends one a second
	case operation == nil:
		s.unknown(rc)
	default:
		operation(rc)
	}
}

// serveReady responds to a gateway's check: with 200 if requests should come here, and with 503 if
// another instance is better.
func (s *Service) serveReady(rc *fasthttp.RequestCtx) {
	cause := s.Health()
	if s.stopping.Err() != nil {
		cause = errors.New("the service is stopping")
	}
	if cause != nil {
		rc.Error(cause.Error(), fasthttp.StatusServiceUnavailable)
		return
	}
	rc.SetBodyString("ready")
}

const (
	readyPath = "/readyz"
	listPath  = "/v1/pets"
	petPrefix = listPath + "/"
	petPath   = petPrefix + "{petId}"
)

// paths are those of the operations.
var paths = map[string]string{"listPets": listPath, "createPet": listPath, "getPet": petPath}

// route makes the operations known to the router.
func (s *Service) route() {
	list, create, get := s.serving("listPets", s.list), s.serving("createPet", s.create), s.serving("getPet", s.get)
	s.router = router.New()
	s.router.GET(listPath, list)
	s.router.HEAD(listPath, list)
	s.router.POST(listPath, create)
	s.router.GET(petPath, get)
	s.router.HEAD(petPath, get)
	s.strangers = s.serving("none", func(*fasthttp.RequestCtx) (string, error) { return "", errStranger })
	s.unknown = s.serving("none", s.refuseUnknown)
}

// serving returns a handler that serves an operation and finishes the request, also after a panic.
func (s *Service) serving(
	operation string, serve func(*fasthttp.RequestCtx) (outcome string, err error),
) fasthttp.RequestHandler {
	return func(rc *fasthttp.RequestCtx) {
		began, name := time.Now(), operation
		var outcome string
		var err error
		defer func() {
			if v := recover(); v != nil {
				rc.Response.Reset()
				name, err = "none", fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
			s.finish(rc, name, outcome, err, began)
		}()
		outcome, err = serve(rc)
	}
}

// refuseUnknown refuses a path that no operation has, or that does not have the method.
func (s *Service) refuseUnknown(rc *fasthttp.RequestCtx) (outcome string, err error) {
	path := string(rc.Path())
	var methods []string
	for _, method := range []string{fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodPost} {
		if operation, _ := s.router.Lookup(method, path, nil); operation != nil {
			methods = append(methods, method)
		}
	}
	if len(methods) == 0 {
		return "", errNoSuchRoute
	}
	allow := strings.Join(methods, ", ")
	rc.Response.Header.Set("Allow", allow)
	return "", newRefusal(code.MethodNotAllowed, "this path does not have this method. Its methods are "+allow)
}

// finish refuses a request if there is an error. It counts, logs and traces every request, also one
// that fasthttp could not read.
func (s *Service) finish(rc *fasthttp.RequestCtx, operation, outcome string, err error, began time.Time) {
	if err != nil {
		outcome = s.refuse(rc, err)
	}
	if s.draining.Load() {
		rc.SetConnectionClose()
	}
	took, method, id := time.Since(began), string(rc.Method()), string(rc.Request.Header.Peek(requestIDHeader))
	status := rc.Response.StatusCode()
	// Not the target: it may contain an API key by mistake. The gateway logs the path if that is
	// safe.
	line := []any{
		"requestId", id, "method", method, "operation", operation, "outcome", outcome,
		"status", status, "bytes", len(rc.Response.Body()), "micros", took.Microseconds(),
	}
	var span *trace.Span
	if s.isGateway(rc) { // others do not decide what is sampled
		place := s.config.Tracer.Begin(rc.Request.Header.Peek("traceparent"), true)
		span = s.config.Tracer.Start(&place, began)
	}
	var exemplar prometheus.Labels
	if span != nil {
		line, exemplar = append(line, "traceId", span.Trace().String()), span.Trace().Exemplar()
		span.EndRequest(trace.Request{
			Method: method, Route: paths[operation], Operation: operation, ID: id, Outcome: outcome, Status: status,
		}, began.Add(took))
	}
	s.metrics.requests.WithLabelValues(operation, outcome).Inc()
	s.metrics.seconds.WithLabelValues(operation).(prometheus.ExemplarObserver).ObserveWithExemplar(took.Seconds(),
		exemplar)
	if s.config.AccessLog != nil {
		s.config.AccessLog.Info("request", line...)
	}
}

func (s *Service) isGateway(rc *fasthttp.RequestCtx) bool {
	return s.config.Secret == "" ||
		subtle.ConstantTimeCompare(rc.Request.Header.Peek("X-Gateway-Secret"), []byte(s.config.Secret)) == 1
}

// handleUnreadable responds to bytes that fasthttp could not read as a request. fasthttp then
// closes the connection.
func (s *Service) handleUnreadable(rc *fasthttp.RequestCtx, err error) {
	cause := errMalformed
	var tooSmall *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.As(err, &tooSmall):
		cause = errLongHead
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		cause = tooLarge(s.config.BodyBytesMax)
	case errors.As(err, &network) && network.Timeout():
		cause = errSlow
	}
	s.finish(rc, "none", "", cause, time.Now())
}

func (s *Service) list(rc *fasthttp.RequestCtx) (outcome string, err error) {
	q, err := parseQuery(rc.QueryArgs())
	if err != nil {
		return "", err
	}
	found, err := s.store.list(q)
	if err != nil {
		return "", err
	}
	if int64(len(found)) > q.limit {
		found = found[:q.limit]
		next := rc.QueryArgs() // the same, after the last pet of this page
		next.Set("after", strconv.FormatInt(found[q.limit-1].ID, 10))
		rc.Response.Header.Set("Link", "<"+listPath+"?"+next.String()+`>; rel="next"`)
	}
	answer(rc, fasthttp.StatusOK, encode(found))
	return "ok", nil
}

func (s *Service) create(rc *fasthttp.RequestCtx) (outcome string, err error) {
	body := rc.Request.Body()
	switch contentType := string(rc.Request.Header.ContentType()); {
	case !isJSON(contentType):
		return "", newRefusal(code.UnsupportedMediaType,
			fmt.Sprintf("Content-Type is %.100q: send Content-Type: application/json", contentType))
	case !slices.Contains([]string{"", "identity"}, strings.ToLower(string(rc.Request.Header.ContentEncoding()))):
		return "", errEncoded
	case len(body) > s.config.BodyBytesMax:
		return "", tooLarge(s.config.BodyBytesMax)
	}
	p, err := decode(body)
	if err != nil {
		return "", err
	}
	var logical *request
	if lines := rc.Request.Header.PeekAll(api.KeyHeader); len(lines) > 0 {
		key, err := parseKey(lines)
		if err != nil {
			return "", err
		}
		// The gateway sets X-Tenant-Id. A client without a gateway may send any name or none, as it
		// may send any pet.
		logical = newRequest(rc.Request.Header.Peek("X-Tenant-Id"), key, p)
	}
	id, isReplay, err := s.store.add(p, logical)
	if err != nil {
		return "", err
	}
	rc.Response.Header.Set("Location", petPrefix+strconv.FormatInt(id, 10))
	answer(rc, fasthttp.StatusCreated, encode(Pet{id, p}))
	if isReplay {
		rc.Response.Header.Set("Idempotent-Replayed", "true")
		return "replayed", nil
	}
	return "created", nil
}

func (s *Service) get(rc *fasthttp.RequestCtx) (outcome string, err error) {
	id, err := parseInteger(rc.UserValue("petId").(string))
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return "", invalidParameter("petId", "must be an integer")
	case err != nil || id <= 0:
		return "", errNotFound // no pet has such an id
	}
	found, err := s.store.get(id)
	if err != nil {
		return "", err
	}
	answer(rc, fasthttp.StatusOK, encode(found))
	return "ok", nil
}

// refuse responds to an error.
func (s *Service) refuse(rc *fasthttp.RequestCtx, err error) (outcome string) {
	r, ok := errors.AsType[*api.Error](err)
	if !ok {
		s.config.Log.Error("request failed", "error", err.Error(), "requestId",
			string(rc.Request.Header.Peek(requestIDHeader)))
		r = errInternal
	}
	switch r.Status {
	case fasthttp.StatusUnauthorized: // the gateway takes it as a wrong secret; clients do not get it
		rc.Response.Header.Set("WWW-Authenticate", `Bearer realm="petgate"`)
	case fasthttp.StatusConflict, fasthttp.StatusServiceUnavailable:
		rc.Response.Header.Set("Retry-After", "1")
	}
	answer(rc, r.Status, r.AppendJSON(nil))
	return r.Code
}

func answer(rc *fasthttp.RequestCtx, status int, body []byte) {
	rc.Response.SetStatusCode(status)
	rc.Response.Header.SetContentType("application/json")
	rc.Response.SetBodyRaw(body)
}

// isJSON reports whether a Content-Type is absent or application/json with any parameters.
func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return contentType == "" || strings.EqualFold(strings.Trim(media, " \t"), "application/json")
}
