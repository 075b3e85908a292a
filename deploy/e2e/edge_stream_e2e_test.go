//go:build e2e

package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// TestStreams shows what memory a long body costs that passes in both directions at once.
func TestStreams(t *testing.T) {
	const streamed, memoryMax = 1 << 30, 4 << 20 // 2 MiB for each direction
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
	zeros := must.Get[*os.File](t)(os.Open("/dev/zero"))
	defer zeros.Close()
	pass := func(size int64) {
		r := must.Get[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/pets", io.LimitReader(zeros, size)))
		r.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer got.Body.Close()
		if back, err := io.Copy(io.Discard, got.Body); back != size || err != nil {
			t.Errorf("%d bytes of %d came back: %v", back, size, err)
		}
	}
	pass(10_000_000)
	before := g.ResidentBytes(t)
	most, done := before, make(chan bool)
	go func() {
		defer close(done)
		pass(streamed)
	}()
	for {
		select {
		case <-done:
			t.Logf("figure: 1 GiB in both directions at once: %.1f MB more", float64(most-before)/(1<<20))
			if most-before > memoryMax {
				t.Errorf("1 GiB in both directions took %d bytes, want at most %d", most-before, memoryMax)
			}
			return
		case <-time.After(10 * time.Millisecond):
			most = max(most, g.ResidentBytes(t))
		}
	}
}
