package main

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// TestResumedSessionsAreSeen makes two connections to a server with session tickets, and two to one without.
func TestResumedSessionsAreSeen(t *testing.T) {
	l := newLab(t.TempDir(), "")
	if err := l.createCertificate(); err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(l.identity, l.identity)
	if err != nil {
		t.Fatal(err)
	}
	for _, tickets := range []bool{true, false} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer token" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: !tickets}
		server.StartTLS()
		defer server.Close()
		config, err := l.clientTLS()
		if err != nil {
			t.Fatal(err)
		}
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		o := &site{as: setup{tls: true}, listen: server.Listener.Addr().String()}
		for i, token := range []string{"token", "other"} {
			resumed, ok, err := exchangeOnce(o, config, token)
			if want := tickets && i > 0; resumed != want || ok != (token == "token") || err != nil {
				t.Errorf("tickets %v, connection %d: resumed %v, want %v; status 200 %v; %v", tickets, i, resumed, want, ok, err)
			}
		}
	}
}

func TestPercentilesOfDurations(t *testing.T) {
	var took []time.Duration
	for i := range 1001 {
		took = append(took, time.Duration(1000-i)*time.Microsecond)
	}
	if got, want := percentilesOf(took), []int64{100, 250, 500, 750, 900, 950, 990, 999}; !slices.Equal(got, want) {
		t.Errorf("percentiles %v, want %v", got, want)
	}
}
