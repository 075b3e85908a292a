//go:build e2e

package contract_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// Large documents of other publishers, which a Go module has for its own tests, are served with their pages: what --check prints. One that is not
// of OpenAPI 3 is refused with its line and the cure.
func TestLargeDocuments(t *testing.T) {
	t.Parallel()
	var module struct{ Dir string }
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/pb33f/libopenapi@v0.42.4")
	must.Do(t, json.Unmarshal(must.Get[[]byte](t)(download.Output()), &module))
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Upstreams: fleet.FixedUpstream(t)})
	f.MustKeyadmin(append([]string{"tenant", "create", "acme"}, fleet.Unlimited...)...)
	for name, refused := range map[string]string{
		"asana.yaml": "", "docusignv3.1.json": "", "k8s.json": "line 90050: swagger: use OpenAPI 3.0 or 3.1: convert the document",
	} {
		path := filepath.Join(module.Dir, "test_specs", name)
		check := testkit.Start(t, testkit.Build(t, "petgate/gateway"), []string{"DATABASE_URL=" + f.Database}, "--check", "--api", path)
		if code := check.ExitCode(t); code != 2*min(len(refused), 1) || !strings.Contains(check.Stderr.String(), refused) {
			t.Errorf("%s: --check ends with %d: %s", name, code, check.Stderr)
		}
		if refused != "" {
			continue
		}
		began, gateway := time.Now(), f.AddGateway("GATEWAY_API="+path)
		took, key := time.Since(began), f.NewKey("acme") // of the scopes that this gateway knows
		c, served := gateway.Client(), 0
		for line := range strings.Lines(check.Stdout.String()) {
			fields := strings.Fields(line)
			if len(fields) < 3 || fields[0] != http.MethodGet || fields[1] == "/v1/quota" || fields[1] == "/v1/usage" {
				continue
			}
			served++
			target := fields[0] + " " + parameter.ReplaceAllString(fields[1], "1")
			for token, want := range map[string]int{key.Token: 200, "": 401} {
				if got := c.Must(t, fleet.Request(target, token, "")); got.Status != want {
					t.Errorf("%s: %s: %v, want %d", name, target, got, want)
				}
			}
		}
		page := c.Must(t, fleet.Request("GET /docs", "", ""))
		c.Close()
		if page.Status != 200 || len(page.Body) < 10_000 || served < 50 {
			t.Errorf("%s: %d operations are served, /docs is %d with %d bytes", name, served, page.Status, len(page.Body))
		}
		t.Logf("figure: %s: ready with its pages after %v; each of %d operations with GET is 200 with a key and 401 without", name, took.Round(10*time.Millisecond), served)
		gateway.Stop()
	}
}
