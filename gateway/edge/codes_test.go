package edge_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"petgate/gateway/edge"
	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// The document lists each code of the gateway with the status with which the gateway sends it.
func TestDocumentListsEveryCode(t *testing.T) {
	doc := api.Pets().Document
	listed := map[string]bool{} // by status and code
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				text, err := json.Marshal(response.Value.Extensions["x-codes"])
				must.Do(t, err)
				var codes []struct {
					Code       string
					Operations []string
				}
				if err := json.Unmarshal(text, &codes); err != nil {
					t.Fatalf("%s: %v", status, err)
				}
				for _, c := range codes {
					listed[status+" "+c.Code] = true
					// A report ends with the stage report. A statement takes the place of forward.
					isOwn := operation.Extensions["x-answered-by"] != nil
					isReport := isOwn && operation.Extensions["x-scope"] == nil
					sends := c.Operations == nil || slices.Contains(c.Operations, operation.OperationID)
					want := sends
					switch stage := edge.StageOf(c.Code); {
					case c.Code == "address_not_allowed", c.Code == "invalid_parameter", c.Code == "no_such_route": // several stages or none
					case stage == "report":
						want = isReport
					case stage == "forward", c.Code == "upstream_overloaded":
						want = !isOwn
					case stage == "authorize", stage == "meter":
						want = !isReport
					case stage == "statement":
						want = isOwn && !isReport
					case stage != "" && !isOwn:
						want = true
					}
					if sends != want {
						t.Errorf("%s is listed with %s: %t, want %t", operation.OperationID, c.Code, sends, want)
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
