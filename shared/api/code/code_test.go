package code_test

import (
	"maps"
	"slices"
	"testing"

	"petgate/shared/api"
	"petgate/shared/api/code"
	"petgate/shared/core/access"
	"petgate/shared/testkit/must"
)

func TestCodesAreTheDocuments(t *testing.T) {
	doc := api.Pets().Document
	var documented []string
	for _, name := range doc.Components.Schemas["ErrorCode"].Value.Enum {
		documented = append(documented, name.(string))
	}
	slices.Sort(documented)
	if known := slices.Sorted(maps.Keys(code.Statuses)); !slices.Equal(known, documented) {
		t.Errorf("the codes are\n%q\nand the document lists\n%q", known, documented)
	}
}

func TestEveryReasonHasACode(t *testing.T) {
	for r := access.Allowed + 1; r <= access.QuotaNotSet; r++ {
		if c := code.Of(r); c.Name == "" || (c.Status == 401) != r.IsOfKey() {
			t.Errorf("%s: %v", r, c)
		}
	}
	must.Equal(t, code.Of(access.Allowed), code.Code{}, "the code of a key that may call")
}
