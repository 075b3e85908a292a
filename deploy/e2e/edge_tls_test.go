package e2e_test

import (
	"crypto/tls"
	"os"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestTLS renews the certificate of a running gateway. New connections get the new one, and old
// ones live on. /readyz and the metric of the alerts say that one has expired, and nothing once a
// good one is there.
func TestTLS(t *testing.T) {
	t.Parallel()
	inAMonth := time.Now().Add(30 * 24 * time.Hour)
	files := testkit.NewAuthority(t).SaveServer(1, inAMonth)
	f := fleet.Start(t, fleet.Spec{
		Gateways:   1,
		Upstreams:  fleet.FixedUpstream(t),
		GatewayEnv: []string{"GATEWAY_TLS_CERT=" + files.Cert, "GATEWAY_TLS_KEY=" + files.Key},
	})
	gateway := f.Gateways[0]
	key := f.NewTenant("acme", fleet.Unlimited...)
	client := func(protocols ...string) *fleet.Client {
		c := gateway.Client()
		c.TLS = &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
		t.Cleanup(c.Close)
		return c
	}
	visit := func(c *fleet.Client) tls.ConnectionState {
		t.Helper()
		if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != 200 {
			t.Fatal(got)
		}
		return c.Conn.(*tls.Conn).ConnectionState()
	}
	awaitSerial := func(serial int64) {
		t.Helper()
		testkit.Eventually(t, fleet.ReplyWithin, "the new certificate", func() bool {
			return visit(client("http/1.1")).PeerCertificates[0].SerialNumber.Int64() == serial
		})
	}
	if only := client("h2"); only.Connect() != nil || only.Conn.(*tls.Conn).Handshake() == nil {
		t.Error("a client that speaks h2 alone is not refused in the handshake")
	}

	old := client("http/1.1")
	visit(old)
	before := old.Conn
	files.SaveServer(2, time.Now().Add(-time.Minute))
	awaitSerial(2)
	testkit.Eventually(t, fleet.ReplyWithin, "it is reported", func() bool {
		return !gateway.Ready() && gateway.Metric(t, "petgate_certificate_invalid", "public") == 1
	})
	files.SaveServer(3, inAMonth)
	awaitSerial(3)
	testkit.Eventually(t, fleet.ReplyWithin, "nothing is reported", gateway.Ready)
	if visit(old); old.Conn != before {
		t.Error("the connection from before the renewal was closed")
	}
	t.Log(
		"figure: renewed certificates are served without a restart, one that has expired is reported, and old connections live on",
	)
}
