package edge_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// A request that has begun to arrive when the server is shut down is still read and answered; a connection between two
// requests ends.
func TestShutdownWaitsForWhatHasBegun(t *testing.T) {
	r := newRig(t, func(s *setup) { s.ReadTimeout = patience })
	sending, idle := r.dial(t), r.dial(t)
	sending.ask(t, rawGet())
	idle.ask(t, rawGet())
	if _, err := io.WriteString(sending.conn, rawPost("Content-Length: 2", "Expect: 100-continue")); err != nil {
		t.Fatal(err)
	}
	told := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(sending.in, told); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextFor(patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.edge.Shutdown(ctx) }()
	if n, err := idle.in.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: %d bytes, %v", n, err)
	}
	if got := sending.ask(t, "{}"); got.Status != 201 || !got.Closes {
		t.Errorf("got %d, closes %t", got.Status, got.Closes)
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A client that does not begin the TLS handshake is disconnected after the read timeout, also if its connection is above the
// maximum and would only get a refusal.
func TestSilentHandshake(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	r := newRig(t, func(s *setup) {
		s.TLS = &tls.Config{Certificates: certified.TLS.Certificates}
		s.ConnectionsMax, s.ReadTimeout = 1, 500*time.Millisecond
	})
	var silent [2]net.Conn
	for i := range silent {
		c, err := net.Dial("tcp", r.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		silent[i] = c
	}
	for i, c := range silent {
		if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
			t.Errorf("connection %d is held for a client that says nothing", i)
		}
	}
}

// A client that waits for 100 (Continue) gets it, also after a silence that is longer than the write timeout. A gateway that stops
// for longer than that closes the connection instead, so a few tries are allowed.
func TestContinueAfterSilence(t *testing.T) {
	const writeTimeout = 50 * time.Millisecond
	for _, earlier := range []int{0, 1} {
		r := newRig(t, func(s *setup) { s.WriteTimeout, s.ReadTimeout = writeTimeout, patience })
		testkit.Eventually(t, patience, fmt.Sprintf("100 after %d requests", earlier), func() bool {
			client := r.dial(t)
			for range earlier {
				if _, err := client.try(rawGet()); err != nil {
					return false
				}
			}
			if client.conn == nil {
				var err error
				if client.conn, err = net.Dial("tcp", client.address); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * writeTimeout) // the silence is the test
			if err := client.conn.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(client.conn, rawPost("Expect: 100-continue", "Content-Length: 5")); err != nil {
				return false
			}
			line, _ := bufio.NewReader(client.conn).ReadString('\n')
			return line == "HTTP/1.1 100 Continue\r\n"
		})
	}
}
