package contract_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// tapped keeps all bytes that its connections get.
type tapped struct {
	net.Listener
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *tapped) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return tappedConn{c, l}, err
}

type tappedConn struct {
	net.Conn
	to *tapped
}

func (c tappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	c.to.text.Write(p[:n])
	return n, err
}

// An upstream with https gets requests only with a certificate of the given authority, for its name and its time: otherwise they get a code of
// their own, doctor says why, and neither a request nor a byte of it in clear leaves the gateway.
func TestCertificatesOfUpstreams(t *testing.T) {
	t.Parallel()
	ours, foreign := testkit.NewAuthority(t), testkit.NewAuthority(t)
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Upstreams: "unused"})
	key := f.NewTenant("acme", fleet.Unlimited...)
	here := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, c := range []struct {
		name     string
		from     *testkit.Authority
		template x509.Certificate
		valid    time.Duration
		says     string // of doctor; empty: nothing is wrong
	}{
		{"valid", ours, x509.Certificate{IPAddresses: here}, time.Hour, ""},
		{"of another name", ours, x509.Certificate{DNSNames: []string{"other.example"}}, time.Hour, "doesn't contain any IP SANs"},
		{"expired", ours, x509.Certificate{IPAddresses: here}, -time.Minute, "expired"},
		{"foreign", foreign, x509.Certificate{IPAddresses: here}, time.Hour, "unknown authority"},
	} {
		var requests atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			_, _ = io.WriteString(w, "[]")
		}))
		wire := &tapped{Listener: s.Listener}
		s.Listener, s.Config.ErrorLog = wire, nil
		c.template.SerialNumber = big.NewInt(2)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{c.from.Issue(&c.template, time.Now().Add(c.valid))}}
		s.StartTLS()
		t.Cleanup(s.Close)
		gateway := f.AddGateway("GATEWAY_UPSTREAMS="+s.URL, "GATEWAY_UPSTREAM_CA="+ours.CA)
		client := gateway.Client()
		for range 3 {
			got := client.Must(t, fleet.GetPets(key.Token))
			isGood := got.Status == 200 && requests.Load() > 0
			if c.says != "" {
				isGood = got.Status == 502 && strings.Contains(got.Body, `"upstream_certificate"`) && requests.Load() == 0
			}
			if !isGood {
				t.Errorf("%s: %d %s after %d requests", c.name, got.Status, got.Body, requests.Load())
			}
		}
		client.Close()
		done := f.Keyadmin("doctor")
		if found := done.Stdout + done.Stderr; c.says != "" && (done.Code != 1 || !strings.Contains(found, c.says) || !strings.Contains(found, s.Listener.Addr().String())) {
			t.Errorf("%s: doctor exits with %d\n%s", c.name, done.Code, found)
		}
		wire.mu.Lock()
		if text := wire.text.String(); text == "" || strings.Contains(text, "/v1/pets") || strings.Contains(text, key.TenantID) {
			t.Errorf("%s: a part of a request is in clear, or nothing arrived: %q", c.name, text)
		}
		wire.mu.Unlock()
		gateway.Stop()
	}
}
