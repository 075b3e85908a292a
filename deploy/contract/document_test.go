package contract_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"petgate/shared/api"
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

// validate returns how a response differs from the document: an undeclared status or header, a missing or ill-formed header,
// or a body that the document does not describe.
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
			undeclared = append(undeclared, fmt.Errorf("%s %d does not declare header %s", a.operation.id, a.status, name))
		}
	}
	request, err := http.NewRequest(a.operation.method, "http://localhost"+a.operation.target, bytes.NewBufferString(a.operation.body))
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

// checkAnswers checks every response against the document. Each status that the document declares has to be among them.
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
			if !onlyByABug && !slices.ContainsFunc(answers, func(a answer) bool { return a.operation.id == o.id && fmt.Sprint(a.status) == status }) {
				t.Errorf("%s: no answer has the status %s", o.id, status)
			}
		}
	}
}
