package edge_test

import (
	"encoding/json"
	"slices"
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
				var codes []struct {
					Code       string
					Operations []string
				}
				if err := json.Unmarshal(text, &codes); err != nil {
					t.Fatalf("%s: %v", status, err)
				}
				for _, c := range codes {
					listed[status+" "+c.Code] = true
					// An operation that the gateway answers ends with the stage report.
					isAnswered, sends := operation.Extensions["x-answered-by"] != nil, c.Operations == nil || slices.Contains(c.Operations, operation.OperationID)
					switch stage := edge.StageOf(c.Code); {
					case c.Code == "address_not_allowed" || stage == "": // report refuses with it too; the pet service's
					case stage == "report" && sends && !isAnswered, isAnswered && sends && slices.Contains([]string{"authorize", "meter", "forward"}, stage):
						t.Errorf("%s is listed with %s, which stage %s sends", operation.OperationID, c.Code, stage)
					case stage != "report" && !isAnswered && !sends && c.Code != "no_such_route":
						t.Errorf("%s is not listed with %s, which stage %s sends", operation.OperationID, c.Code, stage)
					}
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
