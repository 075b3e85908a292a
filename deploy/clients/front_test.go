//go:build e2e

// Package clients_test runs the clients for Go and TypeScript against real gateways.
package clients_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

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
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && response.StatusCode == http.StatusTooManyRequests {
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
