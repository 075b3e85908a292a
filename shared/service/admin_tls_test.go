package service_test

import (
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestAdminTLS(t *testing.T) {
	inAnHour := time.Now().Add(time.Hour)
	known, strange := testkit.NewAuthority(t), testkit.NewAuthority(t)
	settings := saved(known.SaveServer(2, inAnHour.Add(30*day)))
	client := func(a *testkit.Authority) *tls.Certificate {
		issued := a.Issue(&x509.Certificate{SerialNumber: big.NewInt(3), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, inAnHour)
		return &issued
	}
	// A program with a certificate of the same authority asks admin ports with its own settings.
	asked := must.Get[*tls.Config](t)(settings.Client(quiet))
	start := func(settings service.AdminTLS) (url string) {
		t.Helper()
		ln, err := service.Listen("127.0.0.1:0", "")
		must.Do(t, err)
		a := service.NewAdmin(quiet, service.Settings{AdminTLS: settings}, "")
		must.Do(t, a.Start(ln))
		t.Cleanup(a.Close)
		a.SetReady(func() []service.Problem { return nil })
		return "https://" + ln.Addr().String()
	}
	f := func(url string, certificate *tls.Certificate, want int) {
		t.Helper()
		config := asked.Clone()
		if certificate != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		status := 0
		if response, err := (&http.Client{Transport: transport}).Get(url); err == nil {
			status = response.StatusCode
			response.Body.Close()
		}
		if status != want {
			t.Errorf("%s: %d, want %d", url, status, want)
		}
	}
	none := &tls.Certificate{}
	withoutCA := settings
	withoutCA.ClientCA = ""
	open, closed := start(withoutCA), start(settings)
	f(open+"/metrics", none, 200)
	f(closed+"/metrics", none, 403)
	f(closed+"/debug/pprof/", none, 403)
	f(closed+"/readyz", none, 200)
	f(closed+"/healthz", none, 200)
	f(closed+"/metrics", client(known), 200)
	f(closed+"/metrics", nil, 200)
	f(closed+"/metrics", client(strange), 0) // the handshake fails
	f(strings.Replace(closed, "https", "http", 1)+"/readyz", none, 400)

	address := strings.TrimPrefix(closed, "https://")
	_, code, _, out, errs := load("--probe", "--admin-listen", address, "--admin-tls-cert", settings.Cert,
		"--admin-tls-key", settings.Key, "--admin-client-ca", settings.ClientCA)
	if code != 0 || out != "prog: ready\n" {
		t.Errorf("--probe: %d %q %q", code, out, errs)
	}
}

func TestAdminTLSSettings(t *testing.T) {
	good := saved(testkit.NewAuthority(t).SaveServer(2, time.Now().Add(time.Hour)))
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
	f("--admin-client-ca) is", "--admin-client-ca", good.Key+".none")
	t.Setenv("TEST_ADMIN_TLS_CERT", "")
	f("--admin-tls-cert", "--admin-client-ca", good.ClientCA)
	f("it needs --admin-tls-cert")
	f("it needs --admin-tls-key", "--admin-tls-cert", good.Cert, "--admin-tls-key", "")
	t.Setenv("TEST_ADMIN_TLS_KEY", "")
	f("it needs --admin-tls-cert", "--admin-client-ca", good.ClientCA)
}
