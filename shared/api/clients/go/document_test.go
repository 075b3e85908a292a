package petgate_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"petgate/shared/api"
	petgate "petgate/shared/api/clients/go"
	"petgate/shared/testkit/must"
)

// The client has every operation of the document, sends every parameter, and sends what the
// document describes.
func TestTheClientHasEveryOperation(t *testing.T) {
	limit, status, after, key := 7, petgate.PetStatusSold, int64(41), `"k"`
	by, since := petgate.GetUsageParamsByHour, "36h"
	calls := map[string]func(*petgate.Client) error{
		"listPets": func(c *petgate.Client) error {
			params := petgate.ListPetsParams{Limit: &limit, Status: &status, After: &after}
			for _, err := range c.ListPets(t.Context(), &params) {
				return err
			}
			return nil
		},
		"createPet": func(c *petgate.Client) error {
			_, err := c.CreatePet(t.Context(), petgate.NewPet{Name: "Rex", CategoryID: 1, Status: &status},
				&petgate.CreatePetParams{IdempotencyKey: &key})
			return err
		},
		"getQuota": func(c *petgate.Client) error { _, err := c.GetQuota(t.Context()); return err },
		"getUsage": func(c *petgate.Client) error {
			_, err := c.GetUsage(t.Context(), &petgate.GetUsageParams{By: &by, Since: &since})
			return err
		},
		"getPet": func(c *petgate.Client) error { _, err := c.GetPet(t.Context(), 41); return err },
	}
	doc := api.Pets().Document
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			call := calls[operation.OperationID]
			if call == nil {
				t.Errorf("no method for %s", operation.OperationID)
				continue
			}
			s := &service{replies: []reply{{status: 400}}, began: time.Now()}
			_ = call(
				&petgate.Client{URL: "https://pets.example/", Token: "ptg_test_x", HTTP: &http.Client{Transport: s}},
			)
			if len(s.arrivals) != 1 || s.arrivals[0].method != method ||
				!strings.HasPrefix(s.arrivals[0].target, "https://pets.example/v1/") {
				t.Errorf("%s: %+v", operation.OperationID, s.arrivals)
				continue
			}
			checkRequest(t, doc, path, item, operation, s.arrivals[0])
		}
	}
}

func checkRequest(
	t *testing.T, doc *openapi3.T, path string, item *openapi3.PathItem, operation *openapi3.Operation, a arrival,
) {
	t.Helper()
	request := must.Get[*http.Request](t)(
		http.NewRequest(a.method, a.target, io.NopCloser(bytes.NewBufferString(a.body))),
	)
	request.Header = a.header
	input := &openapi3filter.RequestValidationInput{
		Request: request, QueryParams: request.URL.Query(),
		Route:   &routers.Route{Spec: doc, Path: path, PathItem: item, Method: a.method, Operation: operation},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	for _, p := range operation.Parameters {
		var sent bool
		switch p.Value.In {
		case openapi3.ParameterInQuery:
			sent = request.URL.Query().Has(p.Value.Name)
		case openapi3.ParameterInHeader:
			sent = request.Header.Get(p.Value.Name) != ""
		case openapi3.ParameterInPath:
			input.PathParams, sent = map[string]string{p.Value.Name: "41"}, request.URL.Path == "/v1/pets/41"
		}
		if !sent {
			t.Errorf("%s does not send %s: %s %s", operation.OperationID, p.Value.Name, a.method, a.target)
		}
	}
	if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
		t.Errorf("%s: %v", operation.OperationID, err)
	}
}
