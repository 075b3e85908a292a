package service_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/shared/service"
)

// authority issues certificates, for servers and for clients.
type authority struct {
	t    *testing.T
	dir  string
	root *x509.Certificate
	key  *ecdsa.PrivateKey // of all certificates
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{t: t, dir: t.TempDir(), key: key, root: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
	}}
	a.save("ca.pem", "CERTIFICATE", a.issue(a.root, time.Now().Add(time.Hour)).Certificate[0])
	return a
}

func (a authority) issue(template *x509.Certificate, until time.Time) tls.Certificate {
	a.t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), until
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &a.key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

func (a authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a authority) save(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// saveServer writes a certificate of the server 127.0.0.1 with its key.
func (a authority) saveServer(serial int64, until time.Time) service.AdminTLS {
	a.t.Helper()
	server := a.issue(&x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, until)
	private, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.save("cert.pem", "CERTIFICATE", server.Certificate[0])
	a.save("key.pem", "PRIVATE KEY", private)
	return service.AdminTLS{Cert: a.path("cert.pem"), Key: a.path("key.pem"), ClientCA: a.path("ca.pem")}
}

// A renewed certificate is served and its expiry shown. While the files cannot be used, the previous one is served, and a problem says so.
func TestCertificateReload(t *testing.T) {
	a, now := newAuthority(t), time.Now().Truncate(time.Second)
	files := a.saveServer(2, now.Add(time.Hour))
	c, err := service.LoadCertificate(files.Cert, files.Key, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	watched := service.NewCertificates(registry)
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("%d values and %v without TLS", n, err)
	}
	watched.Watch("public", c)
	serves := func(when string, serial int64, until time.Time, problems int) {
		t.Helper()
		if got := testutil.ToFloat64(watched); got != float64(until.Unix()) {
			t.Errorf("%s: valid until %f, want %d", when, got, until.Unix())
		}
		pair, err := c.Get(nil)
		if err != nil || pair.Leaf.SerialNumber.Int64() != serial {
			t.Errorf("%s: certificate %v, want %d: %v", when, pair.Leaf.SerialNumber, serial, err)
		}
		found := service.ProblemsOf(watched)
		if len(found) != problems || problems > 0 && (!found[0].Serving || !strings.Contains(found[0].Detail, "the public port")) {
			t.Errorf("%s: %+v, want %d problems", when, found, problems)
		}
	}
	serves("at first", 2, now.Add(time.Hour), 0)

	renewed := now.Add(90 * 24 * time.Hour)
	a.saveServer(3, renewed)
	serves("before it is looked at again", 2, now.Add(time.Hour), 0)
	now = now.Add(service.LookEvery)
	serves("renewed, without a connection since", 3, renewed, 0)

	a.save("key.pem", "PRIVATE KEY", []byte("half a renewal"))
	now = now.Add(service.LookEvery)
	serves("the files do not fit together", 3, renewed, 1)
	a.saveServer(4, renewed)
	now = now.Add(service.LookEvery)
	serves("the renewal is complete", 4, renewed, 0)

	if err := os.Rename(files.Cert, files.Cert+".away"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(service.LookEvery)
	serves("the file is gone", 4, renewed, 1)
	if err := os.Rename(files.Cert+".away", files.Cert); err != nil {
		t.Fatal(err)
	}
	now = now.Add(service.LookEvery)
	serves("the file is back", 4, renewed, 0)
}
