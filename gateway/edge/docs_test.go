package edge

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

var update = flag.Bool("update", false, "write docs/refusals.md from the code")

const generated = "<!-- Written by `go test ./gateway/edge -run TestDocs -update`. -->\n"

// The documentation is what the code says.
func TestDocs(t *testing.T) {
	f := func(path, text string) {
		t.Helper()
		if *update {
			must.Do(t, os.WriteFile(path, []byte(text), 0o644))
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
The codes of the gateway's [errors](api.md#errors); each is also a label of metrics and an outcome in the access log. A message may say more than
the one here. The stage is the first that can refuse so. Refusals by accept end the connection. A request
that is refused from the stage route on is charged (one with the code internal only if meter was passed); so is one with a body of more than 64 KiB,
whatever its code, if the body breaks off or the key ends after forwarding has begun.

| stage | code | status | message |
|---|---|---|---|
`)
	for r := none + 1; r < reasons; r++ {
		row := r.row()
		fmt.Fprintf(&b, "| %s | `%s` | %d | %s |\n", row.stage, row.Name, row.Status, row.message)
	}
	return b.String()
}
