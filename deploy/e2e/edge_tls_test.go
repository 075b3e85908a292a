package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLS renews the certificate of a running gateway, with valid and with invalid files.
func TestTLS(t *testing.T) {
	t.Parallel()
	inAMonth := time.Now().Add(30 * 24 * time.Hour)
	files := testkit.NewAuthority(t).SaveServer(1, inAMonth)
	f := fleet.Start(t, fleet.Spec{Gateways: 1, GatewayEnv: []string{"GATEWAY_TLS_CERT=" + files.Cert, "GATEWAY_TLS_KEY=" + files.Key}})
	gateway := f.Gateways[0]
	key := f.NewTenant("acme", fleet.Unlimited...)
	client := func(protocols ...string) *fleet.Client {
		c := gateway.Client()
		c.TLS = &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
		return c
	}
	// visit sends a request on a new connection and returns the result of its TLS handshake.
	visit := func(protocols ...string) tls.ConnectionState {
		t.Helper()
		c := client(protocols...)
		defer c.Close()
		if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != 200 {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		return c.Conn.(*tls.Conn).ConnectionState()
	}
	serial := func() int64 { return visit("http/1.1").PeerCertificates[0].SerialNumber.Int64() }

	if agreed := visit("h2", "http/1.1").NegotiatedProtocol; agreed != "http/1.1" {
		t.Errorf("a client that speaks h2 and http/1.1 is told %q", agreed)
	}
	only := client("h2")
	defer only.Close()
	if only.Connect() != nil || only.Conn.(*tls.Conn).Handshake() == nil {
		t.Error("a client that speaks h2 alone is not refused in the handshake")
	}

	old := client("http/1.1")
	defer old.Close()
	old.Must(t, fleet.GetPets(key.Token))
	before := old.Conn
	if n := serial(); n != 1 {
		t.Fatalf("certificate %d is served, not the first one", n)
	}
	files.SaveServer(2, inAMonth)
	began := time.Now()
	testkit.Eventually(t, fleet.ReplyWithin, "the new certificate", func() bool { return serial() == 2 })
	took := time.Since(began)

	writeFile(t, files.Cert, "no certificate")
	testkit.Eventually(t, fleet.ReplyWithin, "a word of the bad certificate", func() bool {
		return serial() == 2 && strings.Contains(gateway.AdminPage(t, "/readyz"), "the public port serves an old certificate")
	})
	if n := serial(); n != 2 {
		t.Errorf("certificate %d is served after a bad renewal", n)
	}
	if !gateway.Ready() || !strings.Contains(gateway.Stderr.String(), "because the files cannot be used") {
		t.Errorf("a gateway with a valid old certificate is not ready, or its log lacks the cause:\n%s", gateway.Stderr)
	}
	if got := old.Must(t, fleet.GetPets(key.Token)); got.Status != 200 || old.Conn != before {
		t.Errorf("the connection from before: %d, the same: %t", got.Status, old.Conn == before)
	}
	files.SaveServer(3, inAMonth)
	testkit.Eventually(t, fleet.ReplyWithin, "a good certificate after a bad one", func() bool { return serial() == 3 })
	if page := gateway.AdminPage(t, "/readyz"); strings.Contains(page, "certificate") {
		t.Errorf("/readyz says after it %s", page)
	}
	t.Logf("figure: a renewed certificate is served after %v without a restart, old connections live on, a bad one changes nothing",
		took.Round(time.Millisecond))
}

// TestCertificateIsReported renews the certificate of a gateway in place with ones that clients refuse. /readyz, doctor, the log and the
// metrics of the alerts say what is wrong, and nothing once a good one is there.
func TestCertificateIsReported(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now, files := time.Now(), testkit.NewAuthority(t)
	save := func(name string, from, until time.Duration) {
		files.Save(&x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: now.Add(from)}, now.Add(until))
	}
	save("api.example", -day, 60*day)
	f := fleet.Start(t, fleet.Spec{Gateways: 1, GatewayEnv: []string{
		"GATEWAY_TLS_CERT=" + files.Cert, "GATEWAY_TLS_KEY=" + files.Key, "GATEWAY_TLS_NAME=api.example",
	}})
	gateway := f.Gateways[0]
	for _, c := range []struct {
		name, host  string
		from, until time.Duration
		ready       bool
		level, want string
		cure        string
		invalid     string
	}{
		{"near", "api.example", -day, 13 * day, true, "WARN", "expires at ", "renew it, and replace its files", "0"},
		{"expired", "api.example", -day, -time.Hour, false, "ERROR", "expired at ", "renew it, and replace its files", "1"},
		{"not yet valid", "api.example", day, 60 * day, false, "ERROR", "is not valid before ", "check the clocks", "1"},
		{"wrong name", "www.example", -day, 60 * day, false, "ERROR", "is for www.example, and not for api.example", "get one that has this name", "1"},
		{"renewed", "api.example", -day, 61 * day, true, "", "", "", "0"},
	} {
		save(c.host, c.from, c.until)
		said := "the certificate of the public port " + c.want
		var page, metrics string
		if !testkit.Await(fleet.ReplyWithin, func() bool {
			page, metrics = gateway.AdminPage(t, "/readyz"), gateway.AdminPage(t, "/metrics")
			return strings.Contains(page, `"certificate"`) == (c.want != "") && strings.Contains(page, c.want) && gateway.Ready() == c.ready
		}) {
			t.Errorf("%s: /readyz says %s", c.name, page)
		}
		expiry := "petgate_certificate_expiry_timestamp_seconds{port=\"public\"} " + strconv.FormatFloat(float64(now.Add(c.until).Unix()), 'g', -1, 64)
		if !strings.Contains(metrics, expiry) || !strings.Contains(metrics, `petgate_certificate_invalid{port="public"} `+c.invalid) {
			t.Errorf("%s: the metrics lack %s, or invalid %s", c.name, expiry, c.invalid)
		}
		doctor := f.Keyadmin("doctor", "-o", "csv")
		if c.want == "" {
			if strings.Contains(doctor.Stdout, "certificate") {
				t.Errorf("doctor after the renewal: %s", doctor.Stdout)
			}
			continue
		}
		if doctor.Code != 1 || !strings.Contains(doctor.Stdout, said) || !strings.Contains(doctor.Stdout, c.cure) {
			t.Errorf("%s: doctor ends with %d:\n%s", c.name, doctor.Code, doctor.Stdout)
		}
		if !regexp.MustCompile(c.level + `.*` + regexp.QuoteMeta(said)).MatchString(gateway.Stderr.String()) {
			t.Errorf("%s: the log has no line %s with %q:\n%s", c.name, c.level, said, gateway.Stderr)
		}
	}
}

// TestCheck runs both programs with --check on settings that are nearly all invalid, and on valid ones.
func TestCheck(t *testing.T) {
	t.Parallel()
	f := func(program string, good, bad, named []string) {
		t.Helper()
		path := testkit.Build(t, "petgate/"+program)
		p := testkit.Start(t, path, good, "--check")
		if code := p.ExitCode(t); code != 0 || !strings.Contains(p.Stdout.String(), "good") {
			t.Errorf("%s --check of good settings: exit code %d\n%s", program, code, p.Stderr)
		}
		p = testkit.Start(t, path, bad, "--check")
		if code := p.ExitCode(t); code != 2 || p.Stdout.String() != "" {
			t.Errorf("%s --check of bad settings: exit code %d\n%s", program, code, p.Stdout)
		}
		for _, name := range named {
			if !strings.Contains(p.Stderr.String(), name) {
				t.Errorf("%s --check does not name %s:\n%s", program, name, p.Stderr)
			}
		}
		if strings.Contains(p.Stderr.String(), "hunter2") {
			t.Errorf("%s --check repeats a password:\n%s", program, p.Stderr)
		}
		t.Logf("figure: %s --check names all of %d bad settings at once, exit 2", program, len(named))
	}
	f("gateway",
		[]string{"DATABASE_URL=postgres://u:hunter2@nowhere.invalid/d", "GATEWAY_UPSTREAMS=unix:/run/pets.sock", "GATEWAY_LISTEN=127.0.0.1:0", "GATEWAY_ADMIN_LISTEN=127.0.0.1:0"},
		[]string{
			"DATABASE_URL=mysql://u:hunter2@h/d", "REDIS_URL=http://:hunter2@h", "GATEWAY_LISTEN=nowhere", "GATEWAY_ADMIN_LISTEN=no port",
			"GATEWAY_UPSTREAMS=ftp://h", "GATEWAY_ENVIRONMENT=moon", "GATEWAY_TRUSTED_PROXIES=everyone", "GATEWAY_TLS_CERT=/nonexistent",
			"GATEWAY_BAN_AFTER=often", "GATEWAY_DRAIN_DELAY=soon", "GATEWAY_LIMITS_ON_OUTAGE=hope", "GATEWAY_BODY_BYTES_MAX=-1",
		},
		[]string{
			"DATABASE_URL", "REDIS_URL", "--listen", "--admin-listen", "ftp://h", "--environment", "GATEWAY_TRUSTED_PROXIES", "--tls-cert",
			"GATEWAY_BAN_AFTER", "GATEWAY_DRAIN_DELAY", "GATEWAY_LIMITS_ON_OUTAGE", "--body-bytes-max",
		})
	f("petsvc",
		[]string{"DATABASE_URL=postgres://u:hunter2@nowhere.invalid/d", "PETSVC_LISTEN=unix:" + filepath.Join(t.TempDir(), "s"), "PETSVC_ADMIN_LISTEN=127.0.0.1:0"},
		[]string{
			"DATABASE_URL=mysql://u:hunter2@h/d", "PETSVC_LISTEN=nowhere", "PETSVC_ADMIN_LISTEN=unix:", "PETSVC_CONNECTIONS=0",
			"PETSVC_QUEUE=-1", "PETSVC_DRAIN_DELAY=soon", "PETSVC_LOG_LEVEL=loud",
		},
		[]string{
			"DATABASE_URL", "--listen", "--admin-listen", "--connections", "--queue", "PETSVC_DRAIN_DELAY", "PETSVC_LOG_LEVEL",
		})
}
