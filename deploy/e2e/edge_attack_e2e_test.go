//go:build e2e

package e2e_test

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
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

	"petgate/shared/core/apikey"
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

var attacks = []attack{
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
	{name: "unknown keys", clients: 64, once: exchange("GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + unknownKey() + "\r\n\r\n")},
	{name: "pipelines of 100 requests", clients: 64, once: exchange(strings.Repeat(keyless, 100))},
	{name: "pipelines whose responses are not read", clients: 200, once: func(c net.Conn) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(c, strings.Repeat(keyless, 100))
		}
	}},
}

func unknownKey() string {
	key, err := apikey.Mint(apikey.Live, rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// body sends a body, and waits for the end of the connection.
func body(size int) func(net.Conn) {
	head, most := fmt.Sprintf("POST /v1/pets HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", size), make([]byte, size)
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

// The attackers and the servers of net/http are processes of their own: this test, started with these variables.
const (
	addressVariable = "TEST_ADDRESS"
	attackVariable  = "TEST_ATTACK" // the name of an attack on the address
	keyVariable     = "TEST_KEY"    // without it, a server at the address answers every request with 200
	pairVariable    = "TEST_PAIR"   // a file with a certificate and its key; without it, the server speaks HTTP
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

// serveControl is a server of net/http without limits, metrics or a log: it shows what an attack costs any server's clients.
func serveControl(address string) error {
	key, pair := os.Getenv(keyVariable), os.Getenv(pairVariable)
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if key != "" && r.Header.Get("Authorization") != "Bearer "+key {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, "[]")
	})
	if pair == "" {
		return http.ListenAndServe(address, serve)
	}
	return http.ListenAndServeTLS(address, pair, pair, serve)
}

// How much longer a client may wait at the gateway than at the control, in the middle, and what is too short to be judged.
const (
	attackFactorMax = 3
	attackFloor     = 100 * time.Millisecond
)

// Strangers who attack do not keep a client with a key out. The test measures how long that client waits beside each attack, at the
// gateway and at a server of net/http in turn.
func TestAttackBesideATenant(t *testing.T) {
	if address := os.Getenv(addressVariable); address != "" {
		for _, a := range attacks {
			if a.name == os.Getenv(attackVariable) {
				runAttack(a, address)
			}
		}
		t.Fatal(serveControl(address))
	}
	const lasting, rounds = time.Second, 2
	self, err := os.Executable()
	must.Do(t, err)
	start := func(nice, address string, env ...string) *testkit.Process {
		return testkit.Start(t, "nice", append(env, addressVariable+"="+address), "-n", nice, self, "-test.run=^TestAttackBesideATenant$")
	}
	control := func(env ...string) string {
		address := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
		start("0", address, env...)
		testkit.Eventually(t, fleet.ReplyWithin, "the control serves", func() bool {
			c, err := net.Dial("tcp", address)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
		return address
	}
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Upstreams: "http://" + control()})
	token := f.NewTenant("acme", fleet.Unlimited...).Token
	pair := savePair(t)
	servers := map[bool][]string{
		false: {f.AddGateway().Addr(), control(keyVariable + "=" + token)},
		true: {
			f.AddGateway("GATEWAY_TLS_CERT="+pair, "GATEWAY_TLS_KEY="+pair).Addr(),
			control(keyVariable+"="+token, pairVariable+"="+pair),
		},
	}
	idle := map[string]waits{}
	for isTLS, addresses := range servers {
		for _, address := range addresses {
			idle[address] = visit(address, token, isTLS, lasting)
		}
	}
	for _, a := range attacks {
		addresses := servers[a.isTLS]
		beside := map[string]waits{}
		for range rounds {
			for _, address := range addresses {
				attackers := start("10", address, attackVariable+"="+a.name)
				testkit.Eventually(t, fleet.ReplyWithin, "the attack begins", func() bool { return attackers.Stdout.Len() > 0 })
				<-time.After(lasting / 4) // most connections are open
				w := visit(address, token, a.isTLS, lasting)
				beside[address] = waits{append(beside[address].took, w.took...), append(beside[address].lost, w.lost...)}
				attackers.Kill()
			}
		}
		gateway, control := beside[addresses[0]], beside[addresses[1]]
		t.Logf("figure: %d clients, %s: a client with a key waits %v; idle %v; at net/http %v", a.clients, a.name, gateway, idle[addresses[0]], control)
		if len(gateway.lost) > 0 {
			t.Errorf("%s: %d requests are lost, such as: %s", a.name, len(gateway.lost), gateway.lost[0])
		}
		if most := max(attackFactorMax*control.part(50), attackFloor); gateway.part(50) > most {
			t.Errorf("%s: half of the requests take more than %v, want at most %v", a.name, gateway.part(50), most)
		}
	}
}

// savePair writes a certificate and its key to one file.
func savePair(t *testing.T) string {
	t.Helper()
	files := testkit.NewAuthority(t).SaveServer(1, time.Now().Add(time.Hour))
	cert, certErr := os.ReadFile(files.Cert)
	key, keyErr := os.ReadFile(files.Key)
	must.Do(t, errors.Join(certErr, keyErr))
	writeFile(t, files.Cert, string(cert)+string(key))
	return files.Cert
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

// visit sends 50 requests a second, whether earlier ones have a response or not. Each has a connection of its own.
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
