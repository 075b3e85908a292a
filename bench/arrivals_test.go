package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// A request that arrives while the only connection waits for a slow response counts from its
// arrival, although it is sent later.
func TestLatencyCountsFromTheArrival(t *testing.T) {
	const stall = 300 * time.Millisecond
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { time.Sleep(stall) })
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	keys := filepath.Join(t.TempDir(), "keys")
	must.Do(t, os.WriteFile(keys, []byte("one two"), 0o600))
	s, err := traffic{
		connections: 1,
		perSecond:   1000,
		duration:    stall / 2,
		keysPath:    keys,
	}.load(t.Context(), &site{listen: server.Listener.Addr().String()})
	must.Do(t, err)
	if s.Requests < 50 || s.Non2xx > 0 || s.Percentiles[p50] < (stall/4).Microseconds() {
		t.Errorf("%d requests, %d refused, p50 %d µs", s.Requests, s.Non2xx, s.Percentiles[p50])
	}
}
