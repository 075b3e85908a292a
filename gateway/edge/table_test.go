package edge

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/api"
	"petgate/shared/api/code"
	"petgate/shared/testkit/must"
)

// Codes lists the codes of all refusals.
func Codes() (codes []string) {
	for _, row := range table[none+1:] {
		codes = append(codes, row.Name)
	}
	return codes
}

// stageOf returns the stage that refuses with a code, or an empty text if the gateway never sends
// it.
func stageOf(code string) string {
	for _, row := range table[none+1:] {
		if row.Name == code {
			return row.stage
		}
	}
	return ""
}

// The document lists each code of the gateway with the status with which the gateway sends it.
func TestDocumentListsEveryCode(t *testing.T) {
	doc := api.Pets().Document
	listed := map[string]bool{} // by status and code
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				var codes []struct {
					Code       string
					Operations []string
				}
				must.Do(t,
					json.Unmarshal(must.Get[[]byte](t)(json.Marshal(response.Value.Extensions["x-codes"])), &codes))
				for _, c := range codes {
					listed[status+" "+c.Code] = true
					// A report ends with the stage report. A statement takes the place of forward.
					isOwn := operation.Extensions["x-answered-by"] != nil
					isReport := isOwn && operation.Extensions["x-scope"] == nil
					sends := c.Operations == nil || slices.Contains(c.Operations, operation.OperationID)
					want := sends
					switch stage := stageOf(c.Code); {
					case c.Code == "address_not_allowed",
						c.Code == "invalid_parameter",
						c.Code == "no_such_route": // several stages or none
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
					must.Equal(t, sends, want, "whether %s is listed with %s", operation.OperationID, c.Code)
				}
			}
		}
	}
	for _, name := range Codes() {
		must.Equal(t, listed[fmt.Sprint(code.StatusOf(name), " ", name)], true,
			"whether x-codes of the document have %s", name)
	}
	for entry := range listed {
		status, name, _ := strings.Cut(entry, " ")
		if want := strconv.Itoa(code.StatusOf(name)); stageOf(name) != "" && want != status {
			t.Errorf("the document lists %s with %s, want %s", name, status, want)
		}
	}
}

var update = flag.Bool("update", false, "write docs/refusals.md from the code")

const generated = "<!-- Written by `go test ./gateway/edge -run TestDocs -update`. -->\n"

// The documentation is what the code says.
func TestDocs(t *testing.T) {
	const path = "../../docs/refusals.md"
	if *update {
		must.Do(t, os.WriteFile(path, []byte(refusalsDoc()), 0o644))
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != refusalsDoc() {
		t.Errorf("%s is not what the code says (%v): run go test ./gateway/edge -run TestDocs -update", path, err)
	}
}

func refusalsDoc() string {
	var b strings.Builder
	b.WriteString("# Refusals\n\n" + generated + `
The codes of the gateway's [errors](api.md#errors). Each is also a label of metrics and an outcome in the access log.
A message may say more than the one here. The stage is the first that has the code.

Refusals by accept end the connection. Refusals by route and the stages after it are charged; for the code internal,
this is so only if the request had passed meter. If a body of more than 64 KiB breaks off, or its key ends, after
forwarding has begun, the refusal is charged whatever its code is. Requests for public operations are never charged.

| stage | code | status | message |
|---|---|---|---|
`)
	for r := none + 1; r < reasons; r++ {
		row := r.row()
		fmt.Fprintf(&b, "| %s | `%s` | %d | %s |\n", row.stage, row.Name, row.Status, row.message)
	}
	return b.String()
}
