//go:build e2e

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

const (
	eventWithin      = 250 * time.Millisecond // five times the aim
	streamMemoryMax  = 2 << 20                // of a request whose bodies pass through
	unreadMemoryMax  = 100 << 20              // of 60 clients that do not read
	largeToNginxMax  = 2.0                    // processor time for answers of 1 MB, to that of nginx
	streamedBytes    = 1 << 30
	unreadClients    = 60
	unreadBytes      = 7_500_000
	largeAnswerBytes = 1_000_000
)

// newStreamUpstream answers GET with as many bytes as the status parameter says, or with events, and POST with the length of its body.
func newStreamUpstream(t *testing.T) (url string, sentAt <-chan time.Time) {
	said := make(chan time.Time, 1)
	part := make([]byte, 64<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			n, err := io.Copy(io.Discard, r.Body)
			if err == nil {
				_, _ = fmt.Fprint(w, n)
			}
			return
		}
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		if size > 0 {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			for ; size > 0; size -= len(part) {
				if _, err := w.Write(part[:min(size, len(part))]); err != nil {
					return
				}
			}
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for range 20 {
			time.Sleep(20 * time.Millisecond) // the pace of the events
			said <- time.Now()
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, said
}

// TestStreams shows what long bodies cost: time, memory and processor time.
func TestStreams(t *testing.T) {
	upstream, sentAt := newStreamUpstream(t)
	f := fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Gateways: 1, Upstreams: upstream,
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
	t.Run("events", func(t *testing.T) {
		in, worst := bufio.NewReader(ask(t, "GET", "", nil).Body), time.Duration(0)
		for range 20 {
			if line, err := in.ReadString('\n'); err != nil || line != "data: x\n" {
				t.Fatalf("%q %v", line, err)
			}
			worst = max(worst, time.Since(<-sentAt))
			_, _ = in.ReadString('\n')
		}
		t.Logf("figure: an event arrives at most %v after the upstream has sent it", worst)
		if worst > eventWithin {
			t.Errorf("an event took %v, want at most %v", worst, eventWithin)
		}
	})
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
	t.Run("processor time", func(t *testing.T) {
		listen := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
		path := filepath.Join(t.TempDir(), "nginx.conf")
		writeFile(t, path, nginxConfig(t, "upstream u { server "+strings.TrimPrefix(upstream, "http://")+"; keepalive 8; }\n"+
			"server { listen "+listen+"; location / { proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection \"\"; } }\n"))
		nginx := testkit.Start(t, findProgram(t, "nginx"), nil, "-e", "stderr", "-c", path)
		load := func(url string) {
			for range 100 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/pets?size="+strconv.Itoa(largeAnswerBytes), nil)
				must.Do(t, err)
				r.Header.Set("Authorization", "Bearer "+token)
				got, err := http.DefaultClient.Do(r)
				must.Do(t, err)
				if n, err := io.Copy(io.Discard, got.Body); n != largeAnswerBytes || err != nil {
					t.Fatalf("%d %d bytes %v", got.StatusCode, n, err)
				}
				_ = got.Body.Close()
			}
		}
		testkit.Eventually(t, 10*time.Second, "nginx listens", func() bool {
			c, err := net.Dial("tcp", listen)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
		var ours, theirs time.Duration
		for range 6 { // in turn, because the machine's pace changes
			ourStart, theirStart := g.ProcessorTime(t), nginx.ProcessorTime(t)
			load(g.URL)
			load("http://" + listen)
			ours, theirs = ours+g.ProcessorTime(t)-ourStart, theirs+nginx.ProcessorTime(t)-theirStart
		}
		ratio := float64(ours) / float64(theirs)
		t.Logf("figure: 600 answers of 1 MB: gateway %v, nginx %v, ratio %.2f", ours, theirs, ratio)
		if ratio > largeToNginxMax {
			t.Errorf("answers of 1 MB take %.2f times the processor time of nginx, want at most %.1f", ratio, largeToNginxMax)
		}
	})
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
