//go:build e2e

package contract_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/api"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// packages are a mock server for any OpenAPI document, and a large public document, as npm has them.
var packages = []string{"@stoplight/prism-cli@5.14.2", "@octokit/openapi@23.0.2"}

// Each operation of three documents, which a mock server serves, is answered through the gateway: 2xx with a key, with the quota's headers
// and usage of the operation, 401 without a key, 403 with a key of another scope.
func TestOperationsOfMockServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "npm", append([]string{"install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund"}, packages...)...)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm, which comes with Node: %v\n%s", err, out)
	}
	for name, path := range map[string]string{
		"pets":    "../../shared/api/openapi.yaml",
		"methods": "../../shared/api/testdata/methods.yaml",
		"github":  filepath.Join(dir, "node_modules/@octokit/openapi/generated/ghes-3.19.json"),
	} {
		t.Run(name, func(t *testing.T) {
			path := must.Get[string](t)(filepath.Abs(path))
			a, err := api.Load(path, must.Get[[]byte](t)(os.ReadFile(path)))
			must.Do(t, err)
			served := filepath.Join(t.TempDir(), "served.json") // as clients get it: with complete paths
			must.Do(t, os.WriteFile(served, must.Get[[]byte](t)(json.Marshal(a.Document)), 0o600))
			node := must.Get[string](t)(exec.LookPath("node"))
			mock := testkit.Start(t, node, []string{"NODE_PATH=" + filepath.Join(dir, "node_modules")}, "testdata/mock.cjs", served)
			testkit.Eventually(t, 3*time.Minute, "the mock server serves", func() bool { return strings.HasPrefix(mock.Stdout.String(), "http") })
			f := fleet.Start(t, fleet.Spec{
				Database: testkit.SQLite(t), Gateways: 1, Upstreams: strings.TrimSpace(mock.Stdout.String()), GatewayEnv: []string{"GATEWAY_API=" + path},
			})
			key := f.NewTenant("acme", fleet.Unlimited...)
			f.NewTenant("other", fleet.Unlimited...)
			other := f.NewKey("other", "--scope", "usage:read")
			called := map[string]int64{}
			for _, o := range a.Operations {
				if o.ByGateway {
					continue
				}
				called[o.ID]++
				ask := func(token string) (*http.Response, string) {
					request := must.Get[*http.Request](t)(http.NewRequestWithContext(t.Context(), o.Method, f.Gateways[0].URL+parameter.ReplaceAllString(o.Path, "1"), nil))
					if token != "" {
						request.Header.Set("Authorization", "Bearer "+token)
					}
					response, err := http.DefaultTransport.RoundTrip(request) // redirects are not followed
					must.Do(t, err)
					defer response.Body.Close()
					var body bytes.Buffer
					_, err = body.ReadFrom(response.Body)
					must.Do(t, err)
					return response, body.String()
				}
				response, body := ask(key.Token)
				described := a.Document.Paths.Value(o.Path).GetOperation(o.Method).Responses.Map()
				isGood := response.StatusCode/100 == 2
				for status := range described {
					isGood = isGood || response.StatusCode/100 == 3 && strings.HasPrefix(status, "3")
				}
				if !isGood || response.Header.Get("X-RateLimit-Limit") != "1000000000" {
					t.Errorf("%s %s: %d %v\n%.300s", o.Method, o.Path, response.StatusCode, response.Header, body)
				}
				for token, want := range map[string]int{"": 401, other.Token: 403} {
					if response, body := ask(token); response.StatusCode != want {
						t.Errorf("%s %s: %d, want %d\n%.300s", o.Method, o.Path, response.StatusCode, want, body)
					}
				}
			}
			counted := map[string]int64{}
			testkit.Eventually(t, time.Minute, "the usage is stored", func() bool {
				counted = map[string]int64{}
				var rows []struct {
					Operation string
					Requests  int64
				}
				must.Do(t, json.Unmarshal([]byte(f.MustKeyadmin("usage", "show", "acme", "--by", "operation", "-o", "json")), &rows))
				for _, row := range rows {
					counted[row.Operation] += row.Requests
				}
				return len(counted) == len(called)
			})
			for id, n := range called {
				if counted[id] != n {
					t.Errorf("%s: %d requests in the usage, want %d", id, counted[id], n)
				}
			}
			t.Logf("figure: %s behind a mock server: %d operations, each 2xx with a key, 401 without, 403 with another scope", name, len(called))
		})
	}
}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// Large documents of other publishers, which a Go module has for its own tests, are served with their pages: what --check prints. One that is not
// of OpenAPI 3 is refused with its line and the cure.
func TestLargeDocuments(t *testing.T) {
	t.Parallel()
	var module struct{ Dir string }
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/pb33f/libopenapi@v0.42.4")
	must.Do(t, json.Unmarshal(must.Get[[]byte](t)(download.Output()), &module))
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Upstreams: fleet.FixedUpstream(t), GatewayEnv: []string{"GATEWAY_DRAIN_DELAY=0s"}})
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
