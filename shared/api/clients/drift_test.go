// Package clients_test checks generated code whose generator needs programs that "make lint" does
// not have.
package clients_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// The types of the TypeScript client are those of the document, and were not edited. This needs no
// Node.
func TestTypeScriptTypesAreUpToDate(t *testing.T) {
	text := must.Get[[]byte](t)(os.ReadFile("typescript/schema.d.ts"))
	if lines := strings.SplitN(string(text), "\n", 4); len(lines) != 4 ||
		lines[1] != fmt.Sprintf("// openapi.yaml sha256:%x", sha256.Sum256(api.Pets().Source())) ||
		lines[2] != fmt.Sprintf("// types sha256:%x", sha256.Sum256([]byte(lines[3]))) {
		t.Error("openapi.yaml or schema.d.ts has changed: run shared/api/clients/typescript/generate (it needs Node)")
	}
}
