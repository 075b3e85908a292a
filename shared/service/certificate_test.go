package service

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// issue writes a self-signed certificate with the given serial number. The parameter changed becomes the files'
// modification time.
func issue(t *testing.T, dir string, serial int64, changed time.Time) {
	t.Helper()
	issueUntil(t, dir, serial, changed, time.Time{})
}

func issueUntil(t *testing.T, dir string, serial int64, changed, expires time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: expires},
		&x509.Certificate{}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), changed)
	write(t, filepath.Join(dir, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), changed)
}

func write(t *testing.T, path string, text []byte, changed time.Time) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, changed, changed); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateReload(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_800_000_000, 0)
	issue(t, dir, 1, now)
	c, err := LoadCertificate(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"),
		func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	watched := NewCertificates(prometheus.NewRegistry())
	watched.Watch("public", c)
	complains := func(when string, want int) {
		t.Helper()
		if found := watched.problems(); len(found) != want || want > 0 && (!found[0].Serving || !strings.Contains(found[0].Detail, "the public port")) {
			t.Errorf("%s: %+v, want %d problems", when, found, want)
		}
	}
	serves := func(when string, want int64) {
		t.Helper()
		pair, err := c.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := pair.Leaf.SerialNumber.Int64(); got != want {
			t.Errorf("%s: certificate %d, want %d", when, got, want)
		}
	}
	serves("at first", 1)

	issue(t, dir, 2, now.Add(time.Minute))
	serves("before it is looked at again", 1)
	now = now.Add(lookEvery)
	serves("renewed", 2)

	write(t, filepath.Join(dir, "key.pem"), []byte("half a renewal"), now.Add(2*time.Minute))
	now = now.Add(lookEvery)
	serves("the files do not fit together", 2)
	complains("the files do not fit together", 1)

	issue(t, dir, 3, now.Add(3*time.Minute))
	now = now.Add(lookEvery)
	serves("the renewal is complete", 3)
	complains("the renewal is complete", 0)

	path := filepath.Join(dir, "cert.pem")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(lookEvery)
	serves("the file is gone", 3)
	complains("the file is gone", 1)
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	now = now.Add(lookEvery)
	complains("the file is back, with its old time", 0)
	serves("the file is back", 3)
}

func TestCertificateExpiry(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_800_000_000, 0)
	registry := prometheus.NewRegistry()
	watched := NewCertificates(registry)
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("%d values and %v without TLS", n, err)
	}
	issueUntil(t, dir, 1, now, now.Add(time.Hour))
	c, err := LoadCertificate(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"),
		func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	watched.Watch("public", c)
	shows := func(when string, want time.Time) {
		t.Helper()
		if got := testutil.ToFloat64(watched); got != float64(want.Unix()) {
			t.Errorf("%s: %f, want %d", when, got, want.Unix())
		}
	}
	shows("at first", now.Add(time.Hour))
	renewed := now.Add(90 * 24 * time.Hour)
	issueUntil(t, dir, 2, now.Add(time.Minute), renewed)
	now = now.Add(lookEvery)
	shows("renewed, without a connection since", renewed)
}
