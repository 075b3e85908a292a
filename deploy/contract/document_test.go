package contract_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// operation is one operation of the document, and a request for it that succeeds.
type operation struct {
	id, method, path string // path is the template
	target           string
	body             string
}

var operations = []operation{
	{"listPets", "GET", "/v1/pets", "/v1/pets", ""},
	{"createPet", "POST", "/v1/pets", "/v1/pets", `{"name":"Rex","categoryId":1}`},
	{"getPet", "GET", "/v1/pets/{petId}", "/v1/pets/1", ""},
	{"getQuota", "GET", "/v1/quota", "/v1/quota", ""},
	{"getUsage", "GET", "/v1/usage", "/v1/usage", ""},
}

// report and usage are the operations that the gateway answers itself. A report is not charged.
var report, usage = operations[3], operations[4]

// answer is one response of the running system, with the requested operation.
type answer struct {
	what      string
	operation operation
	status    int
	code      string // of a refusal
	header    http.Header
	body      []byte
}

// framing are the headers of HTTP itself, which an OpenAPI document does not describe.
var framing = []string{"Content-Type", "Content-Length", "Date", "Connection", "Transfer-Encoding"}

func loadDocument(t testing.TB) *openapi3.T {
	t.Helper()
	doc := must.Get[*openapi3.T](t)(openapi3.NewLoader().LoadFromData(api.Pets().Source()))
	code := doc.Components.Schemas["Error"].Value.Properties["code"].Value
	code.AnyOf = code.AnyOf[:1] // a system of this version sends no other codes
	return doc
}

// validate returns how a response differs from the document: an undeclared status or header, a
// missing or ill-formed header, or a body that the document does not describe.
func validate(doc *openapi3.T, a answer) error {
	item := doc.Paths.Find(a.operation.path)
	described := item.GetOperation(a.operation.method)
	response := described.Responses.Value(fmt.Sprint(a.status))
	if response == nil {
		return fmt.Errorf("%s does not declare status %d", a.operation.id, a.status)
	}
	var undeclared []error
	for name := range a.header {
		declared := slices.Contains(framing, name)
		for documented := range response.Value.Headers {
			declared = declared || http.CanonicalHeaderKey(documented) == name
		}
		if !declared {
			undeclared = append(undeclared,
				fmt.Errorf("%s %d does not declare header %s", a.operation.id, a.status, name))
		}
	}
	request, err := http.NewRequest(a.operation.method, "http://localhost"+a.operation.target,
		bytes.NewBufferString(a.operation.body))
	if err != nil {
		return err
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: request,
			Route: &routers.Route{
				Spec: doc, Path: a.operation.path, PathItem: item, Method: a.operation.method, Operation: described,
			},
		},
		Status:  a.status,
		Header:  a.header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if a.status >= 400 && !bytes.Contains(a.body, fmt.Appendf(nil, `"status":%d`, a.status)) {
		undeclared = append(undeclared, fmt.Errorf("%s %d: the body has another status", a.operation.id, a.status))
	}
	input.SetBodyBytes(a.body)
	return errors.Join(append(undeclared, openapi3filter.ValidateResponse(context.Background(), input))...)
}

// checkAnswers checks every response against the document. Each status that the document declares
// has to be among them.
func checkAnswers(t *testing.T, answers []answer) {
	t.Helper()
	doc := loadDocument(t)
	for _, a := range answers {
		if err := validate(doc, a); err != nil {
			t.Errorf("%s: %d %s\n%v", a.what, a.status, a.body, err)
		}
	}
	for _, o := range operations {
		for status := range doc.Paths.Find(o.path).GetOperation(o.method).Responses.Map() {
			onlyByABug := (o.id == report.id || o.id == usage.id) && status == "500"
			if !onlyByABug &&
				!slices.ContainsFunc(answers,
					func(a answer) bool { return a.operation.id == o.id && fmt.Sprint(a.status) == status }) {
				t.Errorf("%s: no answer has the status %s", o.id, status)
			}
		}
	}
}

// request is what a test sends. Where it matters, the test sets every byte.
type request struct {
	token  string
	method string   // the operation's own when empty
	target string   // likewise
	query  string   // appended to the target
	header []string // further lines
	body   string   // the operation's own when empty
	cut    bool     // half of the body never comes
}

// send writes a request for an operation on a connection of its own and reads the one answer.
func send(t testing.TB, base, what string, o operation, r request) answer {
	t.Helper()
	c := &fleet.Client{Addr: strings.TrimPrefix(base, "http://")}
	defer c.Close()
	reply, err := c.Do(r.text(o))
	if err != nil {
		t.Fatalf("%s %s: %v", what, o.id, err)
	}
	return answer{
		what:      what + " " + o.id,
		operation: o,
		status:    reply.Status,
		code:      reply.Code(),
		header:    reply.Header,
		body:      []byte(reply.Body),
	}
}

// text is the request as it is sent.
func (r request) text(o operation) string {
	r.method, r.target, r.body = cmp.Or(r.method, o.method), cmp.Or(r.target, o.target), cmp.Or(r.body, o.body)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: pets.example\r\n", r.method, r.target, r.query)
	if r.token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", r.token)
	}
	for _, line := range r.header {
		b.WriteString(line + "\r\n")
	}
	if r.cut {
		r.body += "      "
	}
	if r.body != "" && !strings.Contains(b.String(), "Content-Length:") {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	if r.body != "" && !strings.Contains(b.String(), "Content-Type:") {
		b.WriteString("Content-Type: application/json\r\n")
	}
	b.WriteString("\r\n")
	if r.cut {
		r.body = r.body[:len(r.body)/2]
	}
	return b.String() + r.body
}

// faultyUpstream serves what the query parameter fault names, and one pet otherwise.
func faultyUpstream(t *testing.T) string {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Query().Get("fault") {
		case "500":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":"internal","message":"The test wants it so.","status":500}`)
		case "401":
			w.WriteHeader(http.StatusUnauthorized)
		case "503":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"database_unavailable","message":"The test wants it so.","status":503}`)
		case "409":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":"request_in_progress","message":"The test wants it so.","status":409}`)
		case "garbage":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n\r\n")
			_ = conn.Close()
		case "hang":
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		default:
			_, _ = io.WriteString(w, `[{"id":1,"name":"Rex","categoryId":1,"status":"available"}]`)
		}
	}))
	t.Cleanup(func() { close(ended); server.Close() })
	return server.URL
}

func unknownToken(t testing.TB) string {
	t.Helper()
	return must.Get[string](t)(apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live), rand.Reader))
}
