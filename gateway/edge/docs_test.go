package edge

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/refusals.md from the code")

const generated = "<!-- Written by `go test ./gateway/edge -run TestDocs -update`. -->\n"

// The documentation is what the code says.
func TestDocs(t *testing.T) {
	f := func(path, text string) {
		t.Helper()
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%s is not what the code says (%v): run go test ./gateway/edge -run TestDocs -update", path, err)
		}
	}
	f("../../docs/refusals.md", refusalsDoc())
}

func refusalsDoc() string {
	var b strings.Builder
	b.WriteString("# Refusals\n\n" + generated + `
The gateway answers every refused request with an Error body: ` + "`code`, `message`, `status`" + `, and ` + "`details`" + ` on a 429. The
message may say more than the one here, such as why a key is not valid. The code is also the label of metrics and the outcome
in the access log. Refusals by accept end the connection. The stage is the first that can refuse so: a body is read after
authenticate, and may then be refused like a head. A request that is refused before it is taken from the quota is not charged.

| stage | code | status | charged | message |
|---|---|---|---|---|
`)
	for r := none + 1; r < reasons; r++ {
		row := r.row()
		charged := "no"
		if row.charged {
			charged = "yes"
		}
		if r == internal {
			charged = "if meter passed"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %d | %s | %s |\n", row.stage, row.Name, row.Status, charged, row.message)
	}
	return b.String()
}
