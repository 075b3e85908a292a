//go:build e2e

package clients_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

const sources = "../../shared/api/clients/typescript"

// node returns a command that runs a program in TypeScript. Not every Node reads TypeScript itself,
// so esbuild strips the types.
func node(t *testing.T, source string, flags ...string) *exec.Cmd {
	t.Helper()
	for _, name := range []string{"nodejs", "esbuild"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("no %s on this machine: run TEST_PROGRAMS=%s deploy/services.sh, which installs it", name, name)
		}
	}
	out := filepath.Join(t.TempDir(), "program.test.mjs")
	bundle := exec.Command("esbuild", "--bundle", "--log-level=warning", "--platform=node", "--format=esm",
		"--outfile="+out, source)
	if text, err := bundle.CombinedOutput(); err != nil || len(text) > 0 {
		t.Fatalf("esbuild %s: %v\n%s", source, err, text)
	}
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(end)
	return exec.CommandContext(ctx, "nodejs", append(flags, out)...)
}

// run returns the lines of a program that must succeed.
func run(t *testing.T, cmd *exec.Cmd, url, token string) [][]byte {
	t.Helper()
	cmd.Env = append(os.Environ(), "PETGATE_URL="+url, "PETGATE_TOKEN="+token)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s%s", err, &out, &errors)
	}
	return bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
}

func TestTypeScriptClientUnderNode(t *testing.T) {
	t.Parallel()
	cmd := node(t, filepath.Join(sources, "petgate.test.mjs"), "--test")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// documented is the program of the client's README.md, beside the client.
func documented(t *testing.T) string {
	t.Helper()
	page := must.Get[[]byte](t)(os.ReadFile(filepath.Join(sources, "README.md")))
	blocks := regexp.MustCompile("(?s)```ts\n(.*?)```").FindAllSubmatch(page, -1)
	must.Equal(t, len(blocks), 1, "blocks of ts on the page")
	dir := t.TempDir()
	client := must.Get[[]byte](t)(os.ReadFile(filepath.Join(sources, "petgate.ts")))
	for name, text := range map[string][]byte{"petgate.ts": client, "program.ts": blocks[0][1]} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return filepath.Join(dir, "program.ts")
}

// front is an HTTP proxy between one client and a gateway. It counts what the client sends.
type front struct {
	URL string

	mu                       sync.Mutex
	requests, refused, early int       // early ones came before the end of the last Retry-After
	notBefore                time.Time // that end
}

func startFront(t *testing.T, gateway string) *front {
	t.Helper()
	target := must.Get[*url.URL](t)(url.Parse(gateway))
	f := &front{}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.requests++; time.Now().Before(f.notBefore) {
				f.early++
			}
			r.SetURL(target)
		},
		ModifyResponse: func(response *http.Response) error { // it runs before the client gets the response
			f.mu.Lock()
			defer f.mu.Unlock()
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil &&
				response.StatusCode == http.StatusTooManyRequests {
				f.refused++
				f.notBefore = time.Now().Add(time.Duration(seconds) * time.Second)
			}
			return nil
		},
	})
	t.Cleanup(server.Close)
	f.URL = server.URL
	return f
}
