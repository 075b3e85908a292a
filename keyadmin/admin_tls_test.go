package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// An admin port with TLS is asked with the certificates that the environment names.
func TestAdminPortWithTLS(t *testing.T) {
	t.Parallel()
	files := testkit.NewAuthority(t).SaveServer(2, time.Now().Add(time.Hour))
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key) // of the client too
	must.Do(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"version":"1.2.3"}`))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	defer server.Close()
	gateway := keystore.Gateway{AdminAddress: server.URL} // a gateway registers https://… if its admin port uses TLS

	env := map[string]string{adminCAVariable: files.CA, adminCertVariable: files.Cert, adminKeyVariable: files.Key}
	ctx := must.Get[context.Context](t)(withAdminTLS(t.Context(), env))
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
		adminCAVariable:   {adminCAVariable: env[adminKeyVariable]},
		adminCertVariable: {adminCertVariable: env[adminCertVariable]},
	} {
		if err := ask(env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", env, err, want)
		}
	}
}
