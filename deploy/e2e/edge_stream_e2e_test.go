//go:build e2e

package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

const (
	streamMemoryMax = 2 << 20   // of a request whose bodies pass through
	unreadMemoryMax = 100 << 20 // of 60 clients that do not read
	streamedBytes   = 1 << 30
	unreadClients   = 60
	unreadBytes     = 7_500_000
)

// streamUpstream answers GET with as many bytes as the status parameter says, and POST with the length of its body.
func streamUpstream(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			_, _ = fmt.Fprint(w, n)
		}
		return
	}
	w.Header().Set("Content-Length", r.URL.Query().Get("size"))
	size, _ := strconv.ParseInt(r.URL.Query().Get("size"), 10, 64)
	_, _ = io.Copy(w, io.LimitReader(zeros{}, size))
}

// TestStreams shows what memory long bodies cost.
func TestStreams(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(streamUpstream))
	defer upstream.Close()
	f := fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Gateways: 1, Upstreams: upstream.URL,
		GatewayEnv: []string{"GATEWAY_BODY_BYTES_MAX=2147483648", "GATEWAY_ACCESS_LOG=false"},
	})
	token := f.NewTenant("acme", fleet.Unlimited...).Token
	g := f.Gateways[0]
	ask := func(t *testing.T, method, query string, body io.Reader) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, g.URL+"/v1/pets"+query, body)
		must.Do(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(r)
		if err != nil || got.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %v %v", method, query, got, err)
		}
		t.Cleanup(func() { _ = got.Body.Close() })
		return got
	}
	drain := func(t *testing.T, got *http.Response) string {
		t.Helper()
		text, err := io.ReadAll(io.LimitReader(got.Body, 100))
		if err == nil {
			_, err = io.Copy(io.Discard, got.Body)
		}
		must.Do(t, err)
		return string(text)
	}
	t.Run("memory", func(t *testing.T) {
		drain(t, ask(t, "GET", "?size=10000000", nil))
		before := g.ResidentBytes(t)
		most, done := before, make(chan bool)
		go func() {
			defer close(done)
			drain(t, ask(t, "GET", "?size="+strconv.Itoa(streamedBytes), nil))
			sent := io.LimitReader(zeros{}, streamedBytes)
			if got := drain(t, ask(t, "POST", "", sent)); got != strconv.Itoa(streamedBytes) {
				t.Errorf("the upstream got %s bytes", got)
			}
		}()
		for {
			select {
			case <-done:
				t.Logf("figure: 1 GiB in each direction: %.1f MB more", float64(most-before)/(1<<20))
				if most-before > streamMemoryMax {
					t.Errorf("1 GiB in each direction took %d bytes, want at most %d", most-before, streamMemoryMax)
				}
				return
			case <-time.After(10 * time.Millisecond):
				most = max(most, g.ResidentBytes(t))
			}
		}
	})
	t.Run("unread", func(t *testing.T) {
		before, most := g.ResidentBytes(t), int64(0)
		for range unreadClients {
			c, err := net.Dial("tcp", g.Addr())
			must.Do(t, err)
			defer c.Close()
			_, _ = fmt.Fprintf(c, "GET /v1/pets?size=%d HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", unreadBytes, token)
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			most = max(most, g.ResidentBytes(t)-before)
		}
		t.Logf("figure: %d clients that do not read %d bytes: %.1f MB more", unreadClients, unreadBytes, float64(most)/(1<<20))
		if most > unreadMemoryMax {
			t.Errorf("clients that do not read took %d bytes, want at most %d", most, unreadMemoryMax)
		}
	})
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
