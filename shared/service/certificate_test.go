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
			must.Equal(t, len(found), problems, "%s: problems", when)
			if problems > 0 && (!found[0].Serving || !strings.Contains(found[0].Detail, "the public port")) {
				t.Errorf("%s: %+v", when, found)
			}
			end := value(t, registry, "petgate_certificate_expiry_timestamp_seconds")
			must.Equal(t, end, float64(until.Unix()), "%s: valid until", when)
			pair := must.Get[*tls.Certificate](t)(c.Get(nil))
			must.Equal(t, pair.Leaf.SerialNumber.Int64(), serial, "%s: certificate", when)
		}
		serves("at first", 2, first, 0)
		a.SaveServer(3, renewed)
		serves("before it is looked at again", 2, first, 0)

		later := func(when string, serial int64, problems int) {
			t.Helper()
			time.Sleep(service.LookEvery)
			serves(when, serial, renewed, problems)
		}
		later("renewed, without a connection since", 3, 0)
		must.Do(t, os.WriteFile(files.Key, []byte("half a renewal"), 0o600))
		later("the files do not fit together", 3, 1)
		a.SaveServer(4, renewed)
		later("the renewal is complete", 4, 0)
		must.Do(t, os.Rename(files.Cert, files.Cert+".away"))
		later("the file is gone", 4, 1)
		must.Do(t, os.Rename(files.Cert+".away", files.Cert))
		later("the file is back", 4, 0)

		files = saved(testkit.NewAuthority(t).SaveServer(5, renewed.Add(day)))
		longest := must.Get[*service.Certificate](t)(service.LoadCertificate(files.Cert, files.Key, quiet))
		watched.Watch("admin", longest, "")
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

// What is wrong with a certificate is logged at once and then each hour, without a request, until
// the files are renewed. If it is the certificate of the public port, the program is not ready.
func TestCertificateIsReportedEachHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := testkit.NewAuthority(t)
		for _, c := range []struct {
			name, port, host string
			from, until      time.Duration
			want, level      string // want follows "the certificate of the … port "
			serving          bool
			invalid          float64
		}{
			{"near", "public", "", -time.Hour, 13 * day, "expires at ", "WARN", true, 0},
			{"expired", "public", "", -day, -time.Minute, "expired at ", "ERROR", false, 1},
			{"expired, of another port", "admin", "", -day, -time.Minute, "expired at ", "ERROR", true, 1},
			{"not yet valid", "public", "", day, 60 * day, "is not valid before ", "ERROR", false, 1},
			{"wrong name", "public", "b.example", -day, 60 * day, "is for a.example, 10.0.0.5, and not for b.example", "ERROR", false, 1},
			{"right name", "public", "a.example", -day, 60 * day, "", "", true, 0},
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
			found := service.ProblemsOf(all)
			if c.want == "" {
				must.Equal(t, len(found), 0, "%s: problems", c.name)
				must.Equal(t, out.String(), "", "%s: log", c.name)
			} else {
				text := "the certificate of the " + c.port + " port " + c.want
				must.Equal(t, len(found), 1, "%s: problems", c.name)
				if p := found[0]; !strings.HasPrefix(p.Detail, text) || p.Serving != c.serving || p.Cure == "" {
					t.Errorf("%s: /readyz has %+v", c.name, p)
				}
				lines := strings.Count(out.String(), "level="+c.level+` msg="`+text)
				must.Equal(t, lines, 4, "%s: lines in three hours of\n%s", c.name, &out)
			}
			invalid := value(t, registry, "petgate_certificate_invalid")
			must.Equal(t, invalid, c.invalid, "%s: petgate_certificate_invalid", c.name)
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
		usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		issued := a.Issue(&x509.Certificate{SerialNumber: big.NewInt(3), ExtKeyUsage: usage}, inAnHour)
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
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return certificate, nil
			}
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

	probed := load("--probe", "--admin-listen", strings.TrimPrefix(closed, "https://"), "--admin-tls-cert",
		settings.Cert, "--admin-tls-key", settings.Key, "--admin-client-ca", settings.ClientCA)
	must.Equal(t, probed.out, "prog: ready\n", "--probe, which says %s", probed.errs)
	must.Equal(t, probed.code, 0, "exit code of --probe")
}

func TestAdminTLSSettings(t *testing.T) {
	good := saved(testkit.NewAuthority(t).SaveServer(2, time.Now().Add(time.Hour)))
	t.Setenv("TEST_ADMIN_TLS_CERT", good.Cert)
	t.Setenv("TEST_ADMIN_TLS_KEY", good.Key)
	l := load("--admin-client-ca", good.ClientCA)
	must.Equal(t, l.settings.AdminTLS, good, "settings, which give %s", l.errs)
	must.Equal(t, l.done, false, "the program ends")
	f := func(want string, args ...string) {
		t.Helper()
		if l := load(args...); l.code != 2 || !strings.Contains(l.errs, want) {
			t.Errorf("%q: exit code %d, %s", args, l.code, l.errs)
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
