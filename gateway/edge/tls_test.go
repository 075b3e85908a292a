package edge_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"slices"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A request over TLS is one of HTTP/1.1, whatever else the client offers, and the upstream learns that it came over HTTPS.
func TestTLS(t *testing.T) {
	issued := testkit.NewAuthority(t).Issue(&x509.Certificate{SerialNumber: big.NewInt(2)}, time.Now().Add(time.Hour))
	r := newRig(t, func(s *setup) { s.TLS = &tls.Config{Certificates: []tls.Certificate{issued}} })
	conn, err := tls.Dial("tcp", r.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	must.Do(t, err)
	client := &rawClient{conn: conn, in: bufio.NewReader(conn)}
	defer client.close()
	got, protocol := client.ask(t, rawGet()), conn.ConnectionState().NegotiatedProtocol
	if seen := r.upstream.Seen(); got.Status != 200 || protocol != "http/1.1" || len(seen) != 1 || !slices.Equal(seen[0].Fields["x-forwarded-proto"], []string{"https"}) {
		t.Errorf("got %d over %q, and the upstream saw %q", got.Status, protocol, seen)
	}
}
