package pets_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp/fasthttputil"

	"petgate/petsvc/pets"
	"petgate/shared/api"
	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// rig is a service on a database, reached over memory. It checks every response against the OpenAPI
// document before it returns it.
type rig struct {
	*pets.Service
	db       *database.DB
	registry *prometheus.Registry
	listener *fasthttputil.InmemoryListener
	client   *http.Client
	doc      *openapi3.T
}

// start starts a service and waits until it is ready.
func start(t testing.TB, url string, config pets.Config) *rig {
	t.Helper()
	r := launch(t, t.Context(), url, config)
	testkit.Eventually(t, time.Minute, "the service is ready", r.isReady)
	return r
}

// launch starts a service that is asked to stop when ctx ends.
func launch(t testing.TB, ctx context.Context, url string, config pets.Config) *rig {
	t.Helper()
	db := must.Get[*database.DB](t)(database.OpenOrCreate(url))
	r := &rig{db: db, registry: prometheus.NewRegistry(), listener: fasthttputil.NewInmemoryListener()}
	config.Metrics, config.BodyBytesMax = r.registry, cmp.Or(config.BodyBytesMax, 64<<10)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	r.Service = pets.Open(ctx, db, config)
	r.client = &http.Client{Transport: &http.Transport{
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return r.listener.Dial() },
		MaxIdleConnsPerHost: 256,
	}}
	r.doc = must.Get[*openapi3.T](t)(openapi3.NewLoader().LoadFromData(api.Pets().Source()))
	for _, item := range r.doc.Paths.Map() {
		for _, o := range item.Operations() {
			for _, response := range o.Responses.Map() {
				for name, h := range response.Value.Headers { // the gateway adds the others
					h.Value.Required = h.Value.Required &&
						slices.Contains([]string{"Location", "Allow", "Retry-After", "WWW-Authenticate"}, name)
				}
			}
		}
	}
	code := r.doc.Components.Schemas["Error"].Value.Properties["code"].Value
	code.AnyOf = code.AnyOf[:1] // a service of this version sends no other codes
	served := make(chan error, 1)
	go func() { served <- r.Serve(r.listener) }()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		db.Close()
	})
	return r
}

func (r *rig) isReady() bool { return r.Health() == nil }

// takeOneConnection leaves the service one connection: what is set on it concerns all that the
// service does.
func (r *rig) takeOneConnection(t *testing.T) {
	r.db.SetMaxOpenConns(1)
	testkit.Eventually(t, patience, "further connections are closed",
		func() bool { return r.db.Stats().OpenConnections == 1 })
}

// answer is one response.
type answer struct {
	status int
	header http.Header
	body   string
}

// code returns the code of an Error, or "" if the response is not an Error.
func (a answer) code() string {
	var e struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &e)
	return e.Code
}

// is checks the status and the code of an answer, which is "" if it is no Error.
func (a answer) is(t testing.TB, what string, status int, code string) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Errorf("%s: %d %v %s; want %d %s", what, a.status, a.header, a.body, status, code)
	}
}

// do sends a request and checks the answer against the document. Header lines are "Name: value".
func (r *rig) do(t testing.TB, method, target, body string, header ...string) answer {
	t.Helper()
	request := must.Get[*http.Request](t)(http.NewRequest(method, "http://pets"+target, strings.NewReader(body)))
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		request.Header.Add(name, value)
	}
	a := answerOf(t)(r.client.Do(request))
	r.check(t, request, a)
	return a
}

// answerOf reads a response.
func answerOf(t testing.TB) func(*http.Response, error) answer {
	return func(response *http.Response, err error) answer {
		t.Helper()
		must.Do(t, err)
		defer response.Body.Close()
		return answer{response.StatusCode, response.Header, string(must.Get[[]byte](t)(io.ReadAll(response.Body)))}
	}
}

// framing are the headers of HTTP itself, which the document does not describe.
var framing = []string{"Content-Type", "Content-Length", "Date", "Connection"}

func (r *rig) check(t testing.TB, request *http.Request, a answer) {
	t.Helper()
	id, isPet := strings.CutPrefix(request.URL.Path, "/v1/pets/")
	item := r.doc.Paths.Find("/v1/pets")
	if isPet {
		item = r.doc.Paths.Find("/v1/pets/{petId}")
	}
	operation := item.GetOperation(request.Method)
	if operation == nil { // HEAD, and methods that the path does not have
		operation = item.Get
	}
	if request.URL.Path != "/v1/pets" && (!isPet || id == "" || strings.Contains(id, "/")) {
		operation = &openapi3.Operation{
			Responses: openapi3.NewResponses(openapi3.WithStatus(404, r.doc.Components.Responses["NotFound"])),
		}
	}
	response := operation.Responses.Status(a.status)
	if response == nil {
		t.Errorf("%s %s: the document has no status %d", request.Method, request.URL, a.status)
		return
	}
	for name := range a.header {
		described := slices.Contains(framing, name)
		for known := range response.Value.Headers {
			described = described || http.CanonicalHeaderKey(known) == name
		}
		if !described {
			t.Errorf("%s %s: %d: the document does not describe %s", request.Method, request.URL, a.status, name)
		}
	}
	err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: request, Route: &routers.Route{Spec: r.doc, Operation: operation},
		},
		Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader([]byte(a.body))),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("%s %s: %v", request.Method, request.URL, err)
	}
}

// add stores a pet and returns its id.
func (r *rig) add(t testing.TB, name string, status pets.Status) int64 {
	t.Helper()
	a := r.do(t, "POST", "/v1/pets", `{"name":"`+name+`","categoryId":1,"status":"`+string(status)+`"}`)
	id, err := strconv.ParseInt(strings.TrimPrefix(a.header.Get("Location"), "/v1/pets/"), 10, 64)
	if a.status != 201 || err != nil {
		t.Fatalf("adding %s: %d %s", name, a.status, a.body)
	}
	return id
}
