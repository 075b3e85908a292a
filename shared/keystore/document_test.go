package keystore_test

import (
	"encoding/json"
	"testing"

	"petgate/shared/api"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// The public document lists the plans of a new database.
func TestDocumentListsThePlans(t *testing.T) {
	doc := api.Pets().Document
	text, err := json.Marshal(doc.Extensions["x-plans"])
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name string `json:"name"`
		plan.Limits
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	listed := map[string]plan.Limits{}
	for _, row := range rows {
		listed[row.Name] = row.Limits
	}
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		stored := map[string]plan.Limits{}
		for _, p := range must[[]keystore.Plan](t)(s.Plans(t.Context())) {
			stored[p.Name] = p.Limits
		}
		wantEqual(t, "plans", listed, stored)
	})
}
