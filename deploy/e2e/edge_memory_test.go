package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"petgate/shared/testkit/fleet"
)

// keylessMemoryMax is the memory that clients without a key may add to a gateway.
const keylessMemoryMax = 30 << 20

// Many clients without a key send large bodies at once: this costs little memory, and an honest client is still served.
func TestKeylessBodies(t *testing.T) {
	const clients, size = 700, 1 << 20
	f := fleet.Start(t, fleet.Spec{})
	token := f.NewTenant("acme", fleet.Unlimited...).Token
	body := bytes.Repeat([]byte("a"), size)
	for name, head := range map[string]string{
		"a length": fmt.Sprintf("POST /v1/pets HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", size+1),
		"a chunk":  fmt.Sprintf("POST /v1/pets HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", size+1),
	} {
		gateway := f.AddGateway("GATEWAY_UPSTREAMS="+fleet.FixedUpstream(t), "GATEWAY_BODY_BYTES_MAX=2097152", "GATEWAY_ACCESS_LOG=false")
		gateway.MustAsk(t, token)
		before := gateway.ResidentBytes(t)
		conns := make([]net.Conn, clients)
		for i := range conns {
			c, err := net.Dial("tcp", gateway.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conns[i] = c
		}
		var sending sync.WaitGroup
		for _, c := range conns {
			sending.Go(func() {
				_, _ = io.WriteString(c, head)
				_, _ = c.Write(body) // the gateway may have ended the connection
			})
		}
		sent := make(chan struct{})
		go func() { sending.Wait(); close(sent) }()
		most := before
		for isSent := false; !isSent; {
			select {
			case <-sent:
				isSent = true
			default:
			}
			most = max(most, gateway.ResidentBytes(t))
			gateway.MustAsk(t, token)
		}
		grown := most - before
		t.Logf("figure: %d clients without a key, each with 1 MiB of %s: %.1f MB more", clients, name, float64(grown)/(1<<20))
		if grown > keylessMemoryMax {
			t.Errorf("with %s, the gateway grew by %.1f MB, want at most %d", name, float64(grown)/(1<<20), keylessMemoryMax>>20)
		}
	}
}
