//go:build e2e

// Package clients_test runs the clients for Go and TypeScript against real gateways.
package clients_test

import (
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// front is an HTTP proxy between clients and a gateway. It records what each key does.
type front struct {
	URL string

	mu   sync.Mutex
	keys map[string]*record // by token
}

// record is what one key did.
type record struct {
	statuses  map[int]int
	notBefore time.Time     // the end of the last Retry-After
	early     int           // requests that came before it
	soonest   time.Duration // the shortest time from notBefore to a request; negative if one came early
}

func startFront(t *testing.T, gateway string) *front {
	t.Helper()
	target, err := url.Parse(gateway)
	must.Do(t, err)
	f := &front{keys: make(map[string]*record)}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: f.answered,
		ErrorLog:       log.New(t.Output(), "", 0),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.arrived(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.URL = server.URL
	return f
}

// of returns the record of a key. It must be called with mu held.
func (f *front) of(r *http.Request) *record {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if f.keys[token] == nil {
		f.keys[token] = &record{statuses: make(map[int]int), soonest: time.Hour}
	}
	return f.keys[token]
}

func (f *front) arrived(r *http.Request) {
	at := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.of(r)
	if k.notBefore.IsZero() {
		return
	}
	if at.Before(k.notBefore) {
		k.early++
	}
	k.soonest = min(k.soonest, at.Sub(k.notBefore))
}

// answered runs before the client receives the response, so notBefore is not too late.
func (f *front) answered(response *http.Response) error {
	at := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.of(response.Request)
	k.statuses[response.StatusCode]++
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && response.StatusCode == http.StatusTooManyRequests {
		k.notBefore = at.Add(time.Duration(seconds) * time.Second)
	}
	return nil
}
