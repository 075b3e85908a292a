package edge_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"petgate/gateway/edge"
	"petgate/shared/api"
)

// The document lists each code of the gateway with the status with which the gateway sends it.
func TestDocumentListsEveryCode(t *testing.T) {
	doc, err := api.Load()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{} // by status and code
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				text, err := json.Marshal(response.Value.Extensions["x-codes"])
				if err != nil {
					t.Fatal(err)
				}
				var codes []struct{ Code string }
				if err := json.Unmarshal(text, &codes); err != nil {
					t.Fatalf("%s: %v", status, err)
				}
				for _, c := range codes {
					listed[status+" "+c.Code] = true
				}
			}
		}
	}
	for _, code := range edge.Codes() {
		if !listed[strconv.Itoa(edge.StatusOf(code))+" "+code] {
			t.Errorf("%d %s is not in x-codes of the document", edge.StatusOf(code), code)
		}
	}
	for entry := range listed {
		status, code, _ := strings.Cut(entry, " ")
		if want := edge.StatusOf(code); want != 0 && strconv.Itoa(want) != status {
			t.Errorf("the document lists %s with %s, want %d", code, status, want)
		}
	}
}
