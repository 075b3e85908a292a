//go:build e2e

package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// attack is what strangers do on many connections at once, again and again.
type attack struct {
	name    string
	clients int
	isTLS   bool
	once    func(c net.Conn) // until the server or the client ends the connection
}

const keyless = "GET /v1/pets HTTP/1.1\r\nHost: a\r\n\r\n"

func attacks(t *testing.T) []attack {
	return []attack{
		{name: "bodies of 1 MiB", clients: 700, once: body(1 << 20)},
		{name: "bodies of 60 kB", clients: 700, once: body(60_000)},
		{name: "slow heads", clients: 700, once: func(c net.Conn) {
			_, err := io.WriteString(c, "GET /v1/pets HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("a", 600))
			for ; err == nil; _, err = c.Write([]byte("a")) {
				time.Sleep(time.Second) // slowness is the attack
			}
		}},
		{name: "TLS handshakes", clients: 32, isTLS: true, once: func(c net.Conn) { _ = c.(*tls.Conn).Handshake() }},
		{name: "connections that are reset", clients: 32, once: func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }},
		{name: "unknown keys", clients: 64, once: exchange(fleet.GetPets(bogusToken(t)))},
		{name: "pipelines of 100 requests", clients: 64, once: exchange(strings.Repeat(keyless, 100))},
		{name: "pipelines whose responses are not read", clients: 200, once: func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, strings.Repeat(keyless, 100))
			}
		}},
	}
}

// body sends a body, and waits for the end of the connection.
func body(size int) func(net.Conn) {
	const format = "POST /v1/pets HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
	head, most := fmt.Sprintf(format, size), make([]byte, size)
	return func(c net.Conn) {
		_, _ = io.WriteString(c, head)
		_, _ = c.Write(most) // fails if the server has ended the connection
		_, _ = io.Copy(io.Discard, c)
	}
}

// exchange sends requests and reads what comes, again and again.
func exchange(requests string) func(net.Conn) {
	return func(c net.Conn) {
		go func() {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, requests)
			}
		}()
		_, _ = io.Copy(io.Discard, c)
	}
}

// The attackers are processes of their own: this test, started with these variables.
const (
	addressVariable = "TEST_ADDRESS"
	attackVariable  = "TEST_ATTACK"
)

// runAttack attacks until the process is killed.
func runAttack(a attack, address string) {
	for range a.clients {
		go func() {
			for {
				c, err := net.Dial("tcp", address)
				if err != nil {
					time.Sleep(10 * time.Millisecond) // the server has no place
					continue
				}
				if a.isTLS {
					c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
				}
				a.once(c)
				_ = c.Close()
			}
		}()
	}
	fmt.Println("attacking")
	select {}
}

// attackWaitMax is what half of the requests of a client with a key may take beside an attack.
const attackWaitMax = 500 * time.Millisecond

// Strangers who attack do not keep a client with a key out. The test measures how long that client
// waits beside each attack.
func TestAttackBesideATenant(t *testing.T) {
	if address := os.Getenv(addressVariable); address != "" {
		for _, a := range attacks(t) {
			if a.name == os.Getenv(attackVariable) {
				runAttack(a, address)
			}
		}
	}
	const lasting = time.Second
	self := must.Get[string](t)(os.Executable())
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Upstreams: fleet.FixedUpstream(t)})
	token := f.NewTenant("acme", fleet.Unlimited...).Token
	files := testkit.NewAuthority(t).SaveServer(1, time.Now().Add(time.Hour))
	servers := map[bool]string{
		false: f.AddGateway().Addr(),
		true:  f.AddGateway("GATEWAY_TLS_CERT="+files.Cert, "GATEWAY_TLS_KEY="+files.Key).Addr(),
	}
	for _, a := range attacks(t) {
		address := servers[a.isTLS]
		attackers := testkit.Start(t, "nice", []string{addressVariable + "=" + address, attackVariable + "=" + a.name},
			"-n", "10", self, "-test.run=^TestAttackBesideATenant$")
		testkit.Eventually(t, fleet.ReplyWithin, "the attack begins", func() bool { return attackers.Stdout.Len() > 0 })
		<-time.After(lasting / 4) // most connections are open
		beside := visit(address, token, a.isTLS, lasting)
		attackers.Kill()
		t.Logf("figure: %d clients, %s: a client with a key waits %v", a.clients, a.name, beside)
		if len(beside.lost) > 0 {
			t.Errorf("%s: %d requests are lost, such as: %s", a.name, len(beside.lost), beside.lost[0])
		}
		if got := beside.part(50); got > attackWaitMax {
			t.Errorf("%s: half of the requests take more than %v, want at most %v", a.name, got, attackWaitMax)
		}
	}
}

// waits is how long requests took, and what became of those without a response in time.
type waits struct {
	took []time.Duration
	lost []string
}

// part returns the longest of the given part of the waits.
func (w waits) part(percent int) time.Duration {
	slices.Sort(w.took)
	return w.took[len(w.took)*percent/100]
}

func (w waits) String() string {
	return fmt.Sprintf("%.1f ms (p99 %.1f, %d lost)", 1e3*w.part(50).Seconds(), 1e3*w.part(99).Seconds(), len(w.lost))
}

// replyWithin is the time-out of a client with a key.
const replyWithin = 5 * time.Second

// visit sends 50 requests a second, whether earlier ones have a response or not. Each has a
// connection of its own.
func visit(address, token string, isTLS bool, lasting time.Duration) (w waits) {
	const every = 20 * time.Millisecond
	var all sync.WaitGroup
	var mu sync.Mutex
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range lasting / every {
		<-tick.C
		all.Go(func() {
			c := &fleet.Client{Addr: address}
			if isTLS {
				c.TLS = &tls.Config{InsecureSkipVerify: true}
			}
			defer c.Close()
			got, err := c.Do(fleet.GetPets(token))
			mu.Lock()
			defer mu.Unlock()
			w.took = append(w.took, got.Took)
			if err != nil || got.Status != http.StatusOK || got.Took > replyWithin {
				w.lost = append(w.lost, got.String())
			}
		})
	}
	all.Wait()
	return w
}
