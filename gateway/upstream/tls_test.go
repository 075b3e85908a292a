package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// trusting returns a configuration that trusts an authority.
func trusting(t *testing.T, a *testkit.Authority) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must.Get[[]byte](t)(os.ReadFile(a.CA)))
	return &tls.Config{RootCAs: pool}
}

// issued returns a certificate for this machine, or for the name of another one.
func issued(from *testkit.Authority, until time.Time, other ...string) *tls.Config {
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: other}
	if other == nil {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	return &tls.Config{Certificates: []tls.Certificate{from.Issue(template, until)}}
}

// secure returns an instance with TLS.
func secure(t *testing.T, config *tls.Config, handler http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = nil
	s.TLS = config
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// An instance with https gets requests only if its certificate is valid, from a trusted authority
// and for its name.
func TestCertificates(t *testing.T) {
	ours, foreign := testkit.NewAuthority(t), testkit.NewAuthority(t)
	valid, expired := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	f := func(name string, config *tls.Config, most uint16, want error) {
		t.Helper()
		requests := 0
		config.MaxVersion = most
		s := secure(t, config, func(w http.ResponseWriter, r *http.Request) {
			requests++
			_, _ = io.WriteString(w, "[]")
		})
		p := newPool(t, io.Discard, func(c *Config) {
			c.URLs, c.TLS = []string{s.URL}, trusting(t, ours)
			c.Check = Check{Path: "/", Timeout: patience}
		})
		for range 3 {
			if err := p.ask(1, false); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		must.Equal(t, p.hosts[0].probe(t.Context()) == nil, want == nil, "%s: the check succeeds", name)
		problems := p.Problems()
		isNamed := len(problems) == 1 && strings.HasPrefix(problems[0], s.Listener.Addr().String()+": ")
		must.Equal(t, isNamed, want == ErrUntrusted, "%s: whether it is named: %q", name, problems)
		figures := "0 requests, 0 connections"
		if want == nil {
			figures = "4 requests, 1 connections"
		}
		open := p.Stats(time.Now())[0].Open
		must.Equal(t, fmt.Sprintf("%d requests, %d connections", requests, open), figures, "%s", name)
	}
	f("valid", issued(ours, valid), tls.VersionTLS13, nil)
	f("expired", issued(ours, expired), tls.VersionTLS13, ErrUntrusted)
	f("foreign", issued(foreign, valid), tls.VersionTLS13, ErrUntrusted)
	f("of another name", issued(ours, valid, "other.example"), tls.VersionTLS13, ErrUntrusted)
	f("old version", issued(ours, valid), tls.VersionTLS11, ErrUnreachable)
	f("TLS 1.2", issued(ours, valid), tls.VersionTLS12, nil)
}

// A check finds a renewed certificate, also if no request comes.
func TestRenewedCertificate(t *testing.T) {
	ours := testkit.NewAuthority(t)
	var current atomic.Pointer[tls.Config]
	current.Store(issued(ours, time.Now().Add(-time.Minute)))
	s := secure(t,
		&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Load(), nil }},
		func(http.ResponseWriter, *http.Request) {})
	p := newPool(t, io.Discard, func(c *Config) {
		c.URLs, c.TLS, c.Check = []string{s.URL}, trusting(t, ours), Check{Path: "/", Timeout: patience}
	})
	if err := p.ask(1, false); !errors.Is(err, ErrUntrusted) || len(p.Problems()) != 1 {
		t.Errorf("expired: %v, %q", err, p.Problems())
	}
	current.Store(issued(ours, time.Now().Add(time.Hour)))
	if err := p.hosts[0].probe(t.Context()); err != nil || len(p.Problems()) != 0 {
		t.Errorf("renewed: %v, %q", err, p.Problems())
	}
}

// An instance that does not speak TLS, or says nothing, gets no byte of a request in clear.
func TestNothingIsSentInClear(t *testing.T) {
	s := newInstance(t, ok)
	silent, _ := listen(t)
	for _, ln := range []net.Listener{s.ln, silent} {
		p := newPool(t, io.Discard, func(c *Config) {
			c.URLs, c.DialTimeout = []string{"https://" + ln.Addr().String()}, 100*time.Millisecond
		})
		if err := p.ask(1, false); !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
	}
	_, requests := s.seen()
	must.Equal(t, requests, 0, "requests that arrived")
}

// A further connection resumes the session. A connection on which the instance has sent a response
// without a request is not used again, also if only package tls has read it.
func TestConnectionsOverTLS(t *testing.T) {
	ours := testkit.NewAuthority(t)
	ln := must.Get[net.Listener](t)(tls.Listen("tcp", "127.0.0.1:0", issued(ours, time.Now().Add(time.Hour))))
	resumed := make(chan bool, 10)
	serve(t, ln, func(c net.Conn) {
		for first := true; ; first = false {
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				return
			}
			_, _ = io.WriteString(c, ok) // a record
			_, _ = io.WriteString(c, forbidden)
			if first {
				resumed <- c.(*tls.Conn).ConnectionState().DidResume
			}
		}
	})
	p := newPool(t, io.Discard,
		func(c *Config) { c.URLs, c.TLS = []string{"https://" + ln.Addr().String()}, trusting(t, ours) })
	for n := range 10 {
		must.Do(t, p.ask(1, false))
		must.Equal(t, <-resumed, n > 0, "connection %d is resumed", n)
	}
}
