package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"petgate/shared/testkit/must"
)

// Authority issues certificates, for servers and for clients. Its files are in a directory of its
// own.
type Authority struct {
	CA, Cert, Key string // paths: its own certificate; the certificate and the key that SaveServer writes

	t    testing.TB
	root *x509.Certificate
	key  *ecdsa.PrivateKey // of all certificates
}

// NewAuthority returns an authority and writes CA, which is valid for an hour.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	dir := t.TempDir()
	a := &Authority{
		t:    t,
		key:  key,
		root: &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true},
	}
	a.CA, a.Cert, a.Key = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.root.Subject.CommonName = "root"
	a.save(a.CA, "CERTIFICATE", a.Issue(a.root, time.Now().Add(time.Hour)).Certificate[0])
	return a
}

// Issue returns a certificate with the fields of template. It is valid from an hour ago, unless
// template has another time.
func (a *Authority) Issue(template *x509.Certificate, until time.Time) tls.Certificate {
	a.t.Helper()
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	template.NotAfter = until
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &a.key.PublicKey, a.key)
	must.Do(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// SaveServer writes a certificate of the server 127.0.0.1 with its key, and replaces those from
// before.
func (a *Authority) SaveServer(serial int64, until time.Time) *Authority {
	return a.Save(&x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}},
		until)
}

// Save is SaveServer for any certificate.
func (a *Authority) Save(template *x509.Certificate, until time.Time) *Authority {
	a.t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(a.key)
	must.Do(a.t, err)
	a.save(a.Cert, "CERTIFICATE", a.Issue(template, until).Certificate[0])
	a.save(a.Key, "PRIVATE KEY", private)
	return a
}

func (a *Authority) save(path, kind string, der []byte) {
	a.t.Helper()
	must.Do(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
