package code_test

import (
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"petgate/shared/api"
	"petgate/shared/api/code"
	"petgate/shared/core/access"
)

// Every reason has a code, and the OpenAPI document lists it.
func TestEveryReasonHasACode(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(api.Document())
	if err != nil {
		t.Fatal(err)
	}
	listed := doc.Components.Schemas["ErrorCode"].Value.Enum
	for r := access.Allowed + 1; r <= access.QuotaNotSet; r++ {
		c := code.Of(r)
		if !slices.Contains(listed, any(c.Name)) {
			t.Errorf("%s: the document does not list the code %q", r, c.Name)
		}
		if isKey := c.Status == 401; isKey != r.IsOfKey() {
			t.Errorf("%s: the status is %d", r, c.Status)
		}
	}
	if c := code.Of(access.Allowed); c != (code.Code{}) {
		t.Errorf("a key that may call has the code %v", c)
	}
}
