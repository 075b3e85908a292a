package service

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookEvery is the shortest interval between two checks of the certificate's files.
const lookEvery = time.Second

// Certificate serves a certificate from two PEM files and reads them again when they change. While certificate and key do not
// match, as between the two writes of a renewal, it serves the previous certificate.
type Certificate struct {
	certPath, keyPath string
	clock             func() time.Time
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   [2]time.Time // modification times of the files when they were last read
	looked  time.Time
}

// LoadCertificate reads both files. clock says when to look at them again.
func LoadCertificate(certPath, keyPath string, clock func() time.Time, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certPath: certPath, keyPath: keyPath, clock: clock, log: log, looked: clock()}
	var err error
	if c.stamp, err = c.stamps(); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	c.current = &pair
	return c, nil
}

func (c *Certificate) stamps() (stamp [2]time.Time, err error) {
	for i, path := range []string{c.certPath, c.keyPath} {
		info, err := os.Stat(path)
		if err != nil {
			return stamp, fmt.Errorf("load the certificate: %w", err)
		}
		stamp[i] = info.ModTime()
	}
	return stamp, nil
}

// Get is a tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.clock(); now.Sub(c.looked) >= lookEvery {
		c.looked = now
		c.reload()
	}
	return c.current, nil
}

func (c *Certificate) reload() {
	stamp, err := c.stamps()
	if err != nil || stamp == c.stamp {
		return
	}
	c.stamp = stamp
	pair, err := tls.LoadX509KeyPair(c.certPath, c.keyPath)
	if err != nil {
		c.log.Error("the new certificate cannot be used; the old one stays in use", "error", err.Error())
		return
	}
	c.current = &pair
	c.log.Info("certificate reloaded", "path", c.certPath)
}

// Certificates is the metric that says until when the certificates of a program's ports are valid. Its methods may be called
// concurrently.
type Certificates struct {
	mu     sync.Mutex
	byPort map[string]func(*tls.ClientHelloInfo) (*tls.Certificate, error)
}

var certificateExpiry = prometheus.NewDesc("petgate_certificate_expiry_timestamp_seconds",
	"When the certificate of a port expires, in Unix time. The port is public or admin; one without TLS has no value.", []string{"port"}, nil)

// NewCertificates registers the metric.
func NewCertificates(registry prometheus.Registerer) *Certificates {
	c := &Certificates{byPort: make(map[string]func(*tls.ClientHelloInfo) (*tls.Certificate, error))}
	registry.MustRegister(c)
	return c
}

// Watch adds a port: public or admin. The metric asks get for the certificate whenever it is read: Certificate.Get also reads
// changed files, so a port without connections shows its renewal too.
func (c *Certificates) Watch(port string, get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byPort[port] = get
}

// Describe implements prometheus.Collector.
func (c *Certificates) Describe(to chan<- *prometheus.Desc) { to <- certificateExpiry }

// Collect implements prometheus.Collector.
func (c *Certificates) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for port, get := range c.byPort {
		if pair, err := get(nil); err == nil && pair.Leaf != nil {
			to <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(pair.Leaf.NotAfter.Unix()), port)
		}
	}
}
