package service_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"petgate/shared/service"
	"petgate/shared/testkit"
)

// saved are the settings that name the files of an authority.
func saved(a *testkit.Authority) service.AdminTLS {
	return service.AdminTLS{Cert: a.Cert, Key: a.Key, ClientCA: a.CA}
}

// A renewed certificate is served and its expiry shown. While the files cannot be used, the previous one is served, and a problem says so.
func TestCertificateReload(t *testing.T) {
	a, now := testkit.NewAuthority(t), time.Now().Truncate(time.Second)
	files := saved(a.SaveServer(2, now.Add(time.Hour)))
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
	a.SaveServer(3, renewed)
	serves("before it is looked at again", 2, now.Add(time.Hour), 0)
	now = now.Add(service.LookEvery)
	serves("renewed, without a connection since", 3, renewed, 0)

	if err := os.WriteFile(files.Key, []byte("half a renewal"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(service.LookEvery)
	serves("the files do not fit together", 3, renewed, 1)
	a.SaveServer(4, renewed)
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
