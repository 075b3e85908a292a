package service_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// saved are the settings that name the files of an authority.
func saved(a *testkit.Authority) service.AdminTLS {
	return service.AdminTLS{Cert: a.Cert, Key: a.Key, ClientCA: a.CA}
}

// A renewed certificate is served and its expiry shown. While the files cannot be used, the
// previous one is served, and a problem says so.
func TestCertificateReload(t *testing.T) {
	a := testkit.NewAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		first, renewed := time.Now().Add(30*day), time.Now().Add(90*day)
		files := saved(a.SaveServer(2, first))
		c := must.Get[*service.Certificate](t)(service.LoadCertificate(files.Cert, files.Key, quiet))
		registry := prometheus.NewRegistry()
		watched := service.NewCertificates(registry, quiet)
		if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
			t.Errorf("%d values and %v without TLS", n, err)
		}
		watched.Watch("public", c, "")
		serves := func(when string, serial int64, until time.Time, problems int) {
			t.Helper()
			found := service.ProblemsOf(watched)
			if len(found) != problems ||
				problems > 0 && (!found[0].Serving || !strings.Contains(found[0].Detail, "the public port")) {
				t.Errorf("%s: %+v, want %d problems", when, found, problems)
			}
			must.Equal(t, value(t, registry, "petgate_certificate_expiry_timestamp_seconds"), float64(until.Unix()),
				"%s: valid until", when)
			if pair, err := c.Get(nil); err != nil || pair.Leaf.SerialNumber.Int64() != serial {
				t.Errorf("%s: certificate %v, want %d: %v", when, pair.Leaf.SerialNumber, serial, err)
			}
		}
		serves("at first", 2, first, 0)

		a.SaveServer(3, renewed)
		serves("before it is looked at again", 2, first, 0)
		time.Sleep(service.LookEvery)
		serves("renewed, without a connection since", 3, renewed, 0)

		must.Do(t, os.WriteFile(files.Key, []byte("half a renewal"), 0o600))
		time.Sleep(service.LookEvery)
		serves("the files do not fit together", 3, renewed, 1)
		a.SaveServer(4, renewed)
		time.Sleep(service.LookEvery)
		serves("the renewal is complete", 4, renewed, 0)

		must.Do(t, os.Rename(files.Cert, files.Cert+".away"))
		time.Sleep(service.LookEvery)
		serves("the file is gone", 4, renewed, 1)
		must.Do(t, os.Rename(files.Cert+".away", files.Cert))
		time.Sleep(service.LookEvery)
		serves("the file is back", 4, renewed, 0)
		later := testkit.NewAuthority(t).SaveServer(5, renewed.Add(day))
		watched.Watch("admin", must.Get[*service.Certificate](t)(service.LoadCertificate(later.Cert, later.Key, quiet)),
			"")
		must.Equal(t, watched.FirstEnd().Time().Unix(), renewed.Unix(), "the end of the certificate that ends first")
	})
}

// value returns the only value of a metric.
func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must.Do(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// What is wrong with a certificate is logged at once and then each hour, without a request, and no
// more once the files are renewed. The program is not ready if it is the certificate of its public
// port.
func TestCertificateIsReportedEachHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := testkit.NewAuthority(t)
		for _, c := range []struct {
			name, host  string
			port        string
			from, until time.Duration
			want, level string
			serving     bool
			invalid     float64
		}{
			{"near", "", "public", -time.Hour, 13 * day, "the certificate of the public port expires at ", "WARN", true, 0},
			{"expired", "", "public", -day, -time.Minute, "the certificate of the public port expired at ", "ERROR", false, 1},
			{"expired, of another port", "", "admin", -day, -time.Minute, "the certificate of the admin port expired at ", "ERROR", true, 1},
			{"not yet valid", "", "public", day, 60 * day, "the certificate of the public port is not valid before ", "ERROR", false, 1},
			{"wrong name", "b.example", "public", -day, 60 * day, "the certificate of the public port is for a.example, 10.0.0.5, and not for b.example", "ERROR", false, 1},
			{"right name", "a.example", "public", -day, 60 * day, "", "", true, 0},
		} {
			save := func(from, until time.Duration) {
				names := x509.Certificate{
					SerialNumber: big.NewInt(2),
					DNSNames:     []string{"a.example"},
					IPAddresses:  []net.IP{net.IPv4(10, 0, 0, 5)},
				}
				names.NotBefore = time.Now().Add(from)
				files.Save(&names, time.Now().Add(until))
			}
			save(c.from, c.until)
			var out bytes.Buffer
			loaded := must.Get[*service.Certificate](t)(service.LoadCertificate(files.Cert, files.Key, quiet))
			registry := prometheus.NewRegistry()
			all := service.NewCertificates(registry, slog.New(slog.NewTextHandler(&out, nil)))
			all.Watch(c.port, loaded, c.host)
			go service.WatchOf(all, t.Context())
			time.Sleep(3*time.Hour + time.Minute)
			synctest.Wait()
			found, want := service.ProblemsOf(all), 1
			if c.want == "" {
				want = 0
			}
			if len(found) != want ||
				want > 0 &&
					(!strings.HasPrefix(found[0].Detail, c.want) || found[0].Serving != c.serving || found[0].Cure == "") {
				t.Errorf("%s: /readyz has %+v", c.name, found)
			}
			if n := strings.Count(out.String(), "level="+c.level+` msg="`+c.want); c.want != "" && n != 4 ||
				c.want == "" && out.Len() > 0 {
				t.Errorf("%s: %d lines in three hours:\n%s", c.name, n, &out)
			}
			must.Equal(t, value(t, registry, "petgate_certificate_invalid"), c.invalid,
				"%s: petgate_certificate_invalid", c.name)
			out.Reset()
			save(-time.Hour, 60*day)
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			if renewed := len(service.ProblemsOf(all)) == 0 && out.Len() == 0; renewed != (c.host != "b.example") {
				t.Errorf("%s: after a renewal with the same name: %+v\n%s", c.name, service.ProblemsOf(all), &out)
			}
		}
	})
}

const day = 24 * time.Hour

func TestAdminTLS(t *testing.T) {
	inAnHour := time.Now().Add(time.Hour)
	known, strange := testkit.NewAuthority(t), testkit.NewAuthority(t)
	settings := saved(known.SaveServer(2, inAnHour.Add(30*day)))
	client := func(a *testkit.Authority) *tls.Certificate {
		issued := a.Issue(
			&x509.Certificate{SerialNumber: big.NewInt(3), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
			inAnHour)
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
		must.Equal(t, status, want, "%s", url)
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
