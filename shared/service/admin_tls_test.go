package service_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/service"
)

// authority has a certificate of a server, and one of a client.
type authority struct {
	settings service.AdminTLS // of the server; the client's authority is the same
	pool     *x509.CertPool
	client   tls.Certificate
}

func issueAuthority(t *testing.T, dir string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	issue := func(template *x509.Certificate) tls.Certificate {
		t.Helper()
		template.NotBefore, template.NotAfter = root.NotBefore, root.NotAfter
		der, err := x509.CreateCertificate(rand.Reader, template, root, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	save := func(name, kind string, der []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := issue(root)
	server := issue(&x509.Certificate{SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	client := issue(&x509.Certificate{SerialNumber: big.NewInt(3), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{pool: x509.NewCertPool(), client: client}
	a.settings.ClientCA = save("ca.pem", "CERTIFICATE", ca.Certificate[0])
	a.settings.Cert, a.settings.Key = save("cert.pem", "CERTIFICATE", server.Certificate[0]), save("key.pem", "PRIVATE KEY", private)
	parsed, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(parsed)
	return a
}

func TestAdminTLS(t *testing.T) {
	known, strange := issueAuthority(t, t.TempDir()), issueAuthority(t, t.TempDir())
	start := func(settings service.AdminTLS) (url string) {
		t.Helper()
		ln, err := service.Listen("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		a := service.NewAdmin(quiet, service.Settings{AdminTLS: settings}, "")
		if err := a.Start(ln); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		a.SetReady(func() []service.Problem { return nil })
		return "https://" + ln.Addr().String()
	}
	f := func(url string, client []tls.Certificate, want int) {
		t.Helper()
		config := &tls.Config{RootCAs: known.pool}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(client) == 0 {
				return &tls.Certificate{}, nil
			}
			return &client[0], nil
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		status := 0
		if response, err := (&http.Client{Transport: transport}).Get(url); err == nil {
			status = response.StatusCode
			response.Body.Close()
		}
		if status != want {
			t.Errorf("%s with %d certificates: %d, want %d", url, len(client), status, want)
		}
	}
	withoutCA := known.settings
	withoutCA.ClientCA = ""
	open, closed := start(withoutCA), start(known.settings)
	f(open+"/metrics", nil, 200)
	f(closed+"/metrics", nil, 403)
	f(closed+"/debug/pprof/", nil, 403)
	f(closed+"/readyz", nil, 200)
	f(closed+"/healthz", nil, 200)
	f(closed+"/metrics", []tls.Certificate{known.client}, 200)
	f(closed+"/metrics", []tls.Certificate{strange.client}, 0) // the handshake fails
	f(strings.Replace(closed, "https", "http", 1)+"/readyz", nil, 400)

	address := strings.TrimPrefix(closed, "https://")
	_, code, _, out, errs := load("--probe", "--admin-listen", address, "--admin-tls-cert", known.settings.Cert,
		"--admin-tls-key", known.settings.Key, "--admin-client-ca", known.settings.ClientCA)
	if code != 0 || out != "prog: ready\n" {
		t.Errorf("--probe: %d %q %q", code, out, errs)
	}
}

func TestAdminTLSSettings(t *testing.T) {
	dir := t.TempDir()
	good := issueAuthority(t, dir).settings
	t.Setenv("TEST_ADMIN_TLS_CERT", good.Cert)
	t.Setenv("TEST_ADMIN_TLS_KEY", good.Key)
	if s, _, done, _, errs := load("--admin-client-ca", good.ClientCA); done || s.AdminTLS != good {
		t.Errorf("%+v: %s", s.AdminTLS, errs)
	}
	f := func(want string, args ...string) {
		t.Helper()
		if _, code, _, _, errs := load(args...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d, %s", args, code, errs)
		}
	}
	f("--admin-tls-cert", "--admin-tls-key", good.Cert)
	f("--admin-client-ca) is", "--admin-client-ca", good.Key)
	f("--admin-client-ca) is", "--admin-client-ca", filepath.Join(dir, "none"))
	t.Setenv("TEST_ADMIN_TLS_CERT", "")
	f("--admin-tls-cert", "--admin-client-ca", good.ClientCA)
	f("it needs --admin-tls-cert")
	f("it needs --admin-tls-key", "--admin-tls-cert", good.Cert, "--admin-tls-key", "")
	t.Setenv("TEST_ADMIN_TLS_KEY", "")
	f("it needs --admin-tls-cert", "--admin-client-ca", good.ClientCA)
}

// Programs with certificates of one authority can ask one another's admin ports.
func TestAdminTLSOfAClient(t *testing.T) {
	known := issueAuthority(t, t.TempDir())
	ln, err := service.Listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	a := service.NewAdmin(quiet, service.Settings{AdminTLS: known.settings}, "")
	if err := a.Start(ln); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	config, err := known.settings.Client(quiet)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	response, err := (&http.Client{Transport: transport}).Get("https://" + ln.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("/metrics: %d", response.StatusCode)
	}
}
