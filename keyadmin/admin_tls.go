package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"

	"petgate/shared/operate"
)

// The environment variables with what the admin ports of gateways need, if they use TLS.
const (
	adminCAVariable   = "KEYADMIN_ADMIN_CA"   // path of the PEM certificates of their authorities; empty: the system's
	adminCertVariable = "KEYADMIN_ADMIN_CERT" // paths of the client certificate and its key, if they need one
	adminKeyVariable  = "KEYADMIN_ADMIN_KEY"
)

// withAdminTLS returns a context with which operate.AskAdmin uses the certificates that the environment names.
func withAdminTLS(ctx context.Context, env map[string]string) (context.Context, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := env[adminCAVariable]; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, usageErrorf("%s: %v", adminCAVariable, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, usageErrorf("%s: %s has no PEM certificate", adminCAVariable, path)
		}
	}
	if cert, key := env[adminCertVariable], env[adminKeyVariable]; cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, usageErrorf("%s: it cannot be used with %s: %v", adminCertVariable, adminKeyVariable, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return operate.WithAdminTLS(ctx, config), nil
}
