package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"petgate/shared/certificate"
	"petgate/shared/core/instant"
)

const (
	lookEvery   = time.Second // the shortest interval between two checks of the certificate's files
	watchEvery  = time.Minute // between two checks of a port that nobody connects to
	repeatAfter = time.Hour   // a problem is logged again
)

// Certificate serves a certificate from two PEM files and reads them again when they change. While
// the files cannot be used, as between the two writes of a renewal, it serves the previous
// certificate. Its methods may be called concurrently.
type Certificate struct {
	certPath, keyPath string
	log               *slog.Logger

	mu        sync.Mutex
	current   *tls.Certificate
	cert, key []byte // the files that current is of
	fault     error  // why the present files cannot be used
	looked    time.Time
}

// LoadCertificate reads both files.
func LoadCertificate(certPath, keyPath string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certPath: certPath, keyPath: keyPath, log: log, looked: time.Now()}
	if _, err := c.read(); err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	return c, nil
}

// read reads the files, and reports whether they have another certificate than before.
func (c *Certificate) read() (isNew bool, err error) {
	cert, err := os.ReadFile(c.certPath)
	if err != nil {
		return false, err
	}
	key, err := os.ReadFile(c.keyPath)
	if err != nil || bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, err
	}
	c.current, c.cert, c.key = &pair, cert, key
	return true, nil
}

// RequireCertificate records two settings as bad unless both are empty, or both files together are
// a certificate with its key.
func (b *BadSettings) RequireCertificate(certFlag, certPath, keyFlag, keyPath string) {
	switch {
	case certPath == "" && keyPath == "":
	case certPath == "":
		b.Require(false, keyFlag, "it needs --%s", certFlag)
	case keyPath == "":
		b.Require(false, certFlag, "it needs --%s", keyFlag)
	default:
		_, err := LoadCertificate(certPath, keyPath, slog.New(slog.DiscardHandler))
		b.Require(err == nil, certFlag, "it cannot be used with --%s: %v", keyFlag, err)
	}
}

// Get is a tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	current, _ := c.look()
	return current, nil
}

// look returns the certificate to serve and, if the files cannot be used, why.
func (c *Certificate) look() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) >= lookEvery {
		c.looked = time.Now()
		isNew, err := c.read()
		if isNew {
			c.log.Info("certificate reloaded", "path", c.certPath)
		}
		c.fault = err
	}
	return c.current, c.fault
}

// Certificates are the certificates of a program's ports, their problems and metrics. Their methods
// may be called concurrently.
type Certificates struct {
	log             *slog.Logger
	expiry, invalid *prometheus.GaugeVec

	mu     sync.Mutex
	byPort map[string]port
	logged map[string]time.Time // when each present problem was logged last
}

// port is what clients of a port see.
type port struct {
	*Certificate
	name string // by which clients call it; may be empty
}

// NewCertificates registers the metrics.
func NewCertificates(registry prometheus.Registerer, log *slog.Logger) *Certificates {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(registry).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"port"})
	}
	return &Certificates{
		log:    log,
		byPort: make(map[string]port),
		expiry: gauge("petgate_certificate_expiry_timestamp_seconds",
			"When the certificate of a port expires, in Unix time. "+
				"The port is public or admin; one without TLS has no value."),
		invalid: gauge("petgate_certificate_invalid",
			"1 while clients refuse the certificate of a port: "+
				"it has expired, is not valid yet, or is not for --tls-name."),
	}
}

// Watch adds a port, public or admin, with the name that clients use for it, if it is known, and
// logs what is wrong.
func (c *Certificates) Watch(name string, certificate *Certificate, host string) {
	c.mu.Lock()
	c.byPort[name] = port{certificate, host}
	c.mu.Unlock()
	c.review()
}

// FirstEnd returns when the first certificate expires; zero: there is none.
func (c *Certificates) FirstEnd() (first instant.Millis) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.byPort {
		pair, _ := p.look()
		if end := instant.Of(pair.Leaf.NotAfter); first == 0 || end < first {
			first = end
		}
	}
	return first
}

// watch reviews the certificates until ctx ends.
func (c *Certificates) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
			c.review()
		}
	}
}

// review returns what is wrong, sets the metrics, and logs what it has not logged within the last
// hour. It reads changed files, so a port without connections shows its renewal too. A program
// whose files cannot be used serves, but cannot start again. A public port whose certificate
// clients refuse is not ready, so that a balancer can use another gateway.
func (c *Certificates) review() (found []Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	logged := make(map[string]time.Time)
	add := func(p port, level slog.Level, err error, serving bool) {
		found = append(found, ProblemOf("certificate", err, serving))
		text := err.Error()
		logged[text] = c.logged[text]
		if time.Since(logged[text]) >= repeatAfter {
			logged[text] = time.Now()
			c.log.Log(context.Background(), level, text, "path", p.certPath)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.byPort)) {
		p := c.byPort[name]
		pair, err := p.look()
		if err != nil {
			add(p, slog.LevelError,
				fmt.Errorf("the %s port serves an old certificate, because the files cannot be used: %w", name, err),
				true)
		}
		level, invalid := slog.LevelWarn, 0.0
		if fault := certificate.Check(pair.Leaf, p.name, time.Now()); fault != nil {
			if !fault.IsNear {
				level, invalid = slog.LevelError, 1
			}
			add(p, level, fmt.Errorf("the certificate of the %s port %w", name, fault),
				fault.IsNear || name != "public")
		}
		c.expiry.WithLabelValues(name).Set(float64(pair.Leaf.NotAfter.Unix()))
		c.invalid.WithLabelValues(name).Set(invalid)
	}
	c.logged = logged
	return found
}
