package service

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
)

func (t *AdminTLS) isSet() bool { return t.Cert != "" || t.Key != "" }

func (t *AdminTLS) check(bad *BadSettings) {
	bad.RequireCertificate("admin-tls-cert", t.Cert, "admin-tls-key", t.Key)
	if t.ClientCA != "" {
		bad.Require(t.isSet(), "admin-client-ca", "it needs --admin-tls-cert and --admin-tls-key")
		_, err := ReadAuthorities(t.ClientCA)
		bad.Require(err == nil, "admin-client-ca", "%v", err)
	}
}

// ReadAuthorities reads PEM certificates.
func ReadAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("it has no PEM certificate")
	}
	return pool, nil
}

// Client returns the configuration with which this program asks the admin ports of others. It uses
// its own certificate, if it has one, and trusts three groups of authorities: the system's, the
// ones in --admin-client-ca, and the ones in its own chain.
func (t *AdminTLS) Client(log *slog.Logger) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if !t.isSet() {
		return config, nil
	}
	certificate, err := LoadCertificate(t.Cert, t.Key, log)
	if err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return certificate.Get(nil)
	}
	if config.RootCAs, err = x509.SystemCertPool(); err != nil {
		config.RootCAs = x509.NewCertPool() // as on a system without certificates
	}
	for _, path := range []string{t.Cert, t.ClientCA} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		config.RootCAs.AppendCertsFromPEM(text)
	}
	return config, nil
}

// listen adds TLS to a listener, if it is set. watched then shows the expiry of the certificate.
func (t *AdminTLS) listen(ln net.Listener, watched *Certificates, log *slog.Logger) (net.Listener, error) {
	if !t.isSet() {
		return ln, nil
	}
	certificate, err := LoadCertificate(t.Cert, t.Key, log)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.Get}
	if t.ClientCA != "" {
		if config.ClientCAs, err = ReadAuthorities(t.ClientCA); err != nil {
			return nil, fmt.Errorf("--admin-client-ca: %w", err)
		}
		// Not RequireAndVerifyClientCert: load balancers and health checks have no certificate.
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	watched.Watch("admin", certificate, "")
	return tls.NewListener(ln, config), nil
}

// admits reports whether a request has the client certificate that it needs.
func (t *AdminTLS) admits(r *http.Request) bool {
	return t.ClientCA == "" || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" ||
		r.TLS != nil && len(r.TLS.VerifiedChains) > 0
}
