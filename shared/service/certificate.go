package service

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookEvery is the shortest interval between two checks of the certificate's files.
const lookEvery = time.Second

// Certificate serves a certificate from two PEM files and reads them again when they change. While the files cannot be used, as
// between the two writes of a renewal, it serves the previous certificate. Its methods may be called concurrently.
type Certificate struct {
	certPath, keyPath string
	clock             func() time.Time
	log               *slog.Logger

	mu        sync.Mutex
	current   *tls.Certificate
	cert, key []byte // the files that current is of
	fault     error  // why the present files cannot be used
	looked    time.Time
}

// LoadCertificate reads both files. clock says when to look at them again.
func LoadCertificate(certPath, keyPath string, clock func() time.Time, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certPath: certPath, keyPath: keyPath, clock: clock, log: log, looked: clock()}
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

// RequireCertificate records two settings as bad unless both are empty, or both files together are a certificate with its key.
func (b *BadSettings) RequireCertificate(certFlag, certPath, keyFlag, keyPath string) {
	switch {
	case certPath == "" && keyPath == "":
	case certPath == "":
		b.Require(false, keyFlag, "it needs --%s", certFlag)
	case keyPath == "":
		b.Require(false, certFlag, "it needs --%s", keyFlag)
	default:
		_, err := LoadCertificate(certPath, keyPath, time.Now, slog.New(slog.DiscardHandler))
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
	if now := c.clock(); now.Sub(c.looked) >= lookEvery {
		c.looked = now
		isNew, err := c.read()
		switch {
		case isNew:
			c.log.Info("certificate reloaded", "path", c.certPath)
		case err != nil && (c.fault == nil || c.fault.Error() != err.Error()):
			c.log.Error("the new certificate cannot be used; the old one stays in use", "error", err.Error())
		}
		c.fault = err
	}
	return c.current, c.fault
}

// Certificates are the certificates of a program's ports, and the metric of when they expire. Their methods may be called concurrently.
type Certificates struct {
	mu     sync.Mutex
	byPort map[string]*Certificate
}

var certificateExpiry = prometheus.NewDesc("petgate_certificate_expiry_timestamp_seconds",
	"When the certificate of a port expires, in Unix time. The port is public or admin; one without TLS has no value.", []string{"port"}, nil)

// NewCertificates registers the metric.
func NewCertificates(registry prometheus.Registerer) *Certificates {
	c := &Certificates{byPort: make(map[string]*Certificate)}
	registry.MustRegister(c)
	return c
}

// Watch adds a port: public or admin. Reading the metric or the problems also reads changed files, so a port without connections
// shows its renewal too.
func (c *Certificates) Watch(port string, certificate *Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byPort[port] = certificate
}

// problems names each port whose files cannot be used: the program serves, but cannot start again.
func (c *Certificates) problems() (found []Problem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, port := range slices.Sorted(maps.Keys(c.byPort)) {
		if _, err := c.byPort[port].look(); err != nil {
			found = append(found, Problem{
				Name: "certificate", Detail: fmt.Sprintf("the %s port serves an old certificate, because the files cannot be used: %v", port, err),
				Serving: true,
			})
		}
	}
	return found
}

// Describe implements prometheus.Collector.
func (c *Certificates) Describe(to chan<- *prometheus.Desc) { to <- certificateExpiry }

// Collect implements prometheus.Collector.
func (c *Certificates) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for port, certificate := range c.byPort {
		if pair, _ := certificate.look(); pair.Leaf != nil {
			to <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(pair.Leaf.NotAfter.Unix()), port)
		}
	}
}
