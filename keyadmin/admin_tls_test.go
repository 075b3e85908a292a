package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// An admin port with TLS is asked with the certificates that the environment names.
func TestAdminPortWithTLS(t *testing.T) {
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"version":"1.2.3"}`))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	der := server.Certificate().Raw // of the client too
	private, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	gateway := keystore.Gateway{AdminAddress: server.URL} // a gateway registers https://… if its admin port uses TLS

	env := map[string]string{
		adminCAVariable:   write("ca.pem", "CERTIFICATE", der),
		adminCertVariable: write("cert.pem", "CERTIFICATE", der), adminKeyVariable: write("key.pem", "PRIVATE KEY", private),
	}
	ctx, err := withAdminTLS(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := operate.AskAbout(ctx, gateway); err != nil || answer.Version != "1.2.3" {
		t.Errorf("%+v, %v", answer, err)
	}
	ask := func(env map[string]string) error {
		t.Helper()
		ctx, err := withAdminTLS(context.Background(), env)
		if err == nil {
			_, err = operate.AskAbout(ctx, gateway)
		}
		return err
	}
	for want, env := range map[string]map[string]string{
		"certificate": {}, "certificate required": {adminCAVariable: env[adminCAVariable]},
		adminCAVariable: {adminCAVariable: env[adminKeyVariable]}, adminCertVariable: {adminCertVariable: env[adminCertVariable]},
	} {
		if err := ask(env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", env, err, want)
		}
	}
}
