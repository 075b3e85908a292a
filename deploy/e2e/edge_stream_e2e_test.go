//go:build e2e

package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

const (
	streamedBytes   = 1 << 30
	streamMemoryMax = 4 << 20 // 2 MiB for each direction
)

// TestStreams shows what memory a long body costs that passes in both directions at once.
func TestStreams(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // it is HTTP/1.1
		_, _ = io.Copy(w, r.Body)
	}))
	defer upstream.Close()
	f := fleet.Start(t, fleet.Spec{
		Database: testkit.SQLite(t), Gateways: 1, Upstreams: upstream.URL,
		GatewayEnv: []string{"GATEWAY_BODY_BYTES_MAX=2147483648", "GATEWAY_ACCESS_LOG=false"},
	})
	token, g := f.NewTenant("acme", fleet.Unlimited...).Token, f.Gateways[0]
	pass := func(size int64) (back int64, err error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/pets", io.LimitReader(zeros{}, size))
		must.Do(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		defer got.Body.Close()
		return io.Copy(io.Discard, got.Body)
	}
	_, err := pass(10_000_000)
	must.Do(t, err)
	before := g.ResidentBytes(t)
	most, done := before, make(chan bool)
	go func() {
		defer close(done)
		if back, err := pass(streamedBytes); back != streamedBytes || err != nil {
			t.Errorf("%d bytes came back: %v", back, err)
		}
	}()
	for {
		select {
		case <-done:
			t.Logf("figure: 1 GiB in both directions at once: %.1f MB more", float64(most-before)/(1<<20))
			if most-before > streamMemoryMax {
				t.Errorf("1 GiB in both directions took %d bytes, want at most %d", most-before, streamMemoryMax)
			}
			return
		case <-time.After(10 * time.Millisecond):
			most = max(most, g.ResidentBytes(t))
		}
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
