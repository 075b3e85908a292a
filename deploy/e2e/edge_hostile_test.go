package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// edgeMutations are hostile streams with bytes changed at random.
var edgeMutations = testkit.Size(300, 10_000)

// hostile are byte streams of which nothing may be forwarded. KEY is a valid token.
var hostile = []string{
	// Without a valid key.
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ptg_live_x\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Basic KEY\r\n\r\n",
	"GET /v1/pets?token=KEY HTTP/1.1\r\nHost: a\r\nX-Api-Key: KEY\r\nCookie: KEY\r\n\r\n",
	"GET http://u:KEY@a/v1/pets HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nX-Tenant-Id: ten_1\r\nX-Key-Id: key_1\r\nX-Plan: enterprise\r\n\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\n{\"name\":\"x\",\"categoryId\":1}  ",
	// Two readings of one request.
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nTransfer-Encoding: identity\r\n\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nTransfer-Encoding: chunked\r\n\r\n5;\x00\r\nhello\r\n0\r\n\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nContent-Length: -1\r\n\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nContent-Length: 99999999999999999999\r\n\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nContent-Length : 0\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nX-Folded: a\r\n b\r\n\r\n",
	"GET /v1/pets HTTP/1.1\nHost: a\nAuthorization: Bearer KEY\n\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nX: a\rb\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nX: a\x00b\r\n\r\n",
	// Targets, hosts and versions.
	"GET //v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1/../v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1%2fpets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1\\pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1/pets%00 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nAuthorization: Bearer KEY\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET /v1/pets HTTP/2.0\r\nHost: a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: u:p@a\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nAuthorization: Bearer KEY\r\n\r\n",
	"GET /v1/pets\r\n\r\n",
	// Too much, too little, and no HTTP at all.
	"GET /" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\n" + strings.Repeat("X-A: b\r\n", 5000) + "\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nExpect: miracles\r\n\r\n",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nAuthorization: Bearer KEY\r\n\r\n",
	"POST /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY\r\nContent-Length: 10\r\n\r\n{",
	"GET /v1/pets HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer KEY",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"\r\n\r\n\r\n\r\n",
	"\x00\xff\xfe\r\n\r\n",
}

// TestHostileStreams plays byte streams at a gateway with a real pet service behind it.
func TestHostileStreams(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Gateways: 1})
	gateway := f.Gateways[0]
	key := f.NewTenant("acme", fleet.Unlimited...)
	forwarded := func() float64 { return f.Pets.Metric(t, "petgate_petsvc_requests_total", "") }
	admitted := func() float64 { return gateway.Metric(t, "petgate_gateway_requests_total", `outcome="ok"`) }
	answers := make(map[int]int)

	for _, stream := range hostile {
		before := forwarded()
		statuses := play(t, gateway, strings.ReplaceAll(stream, "KEY", key.Token))
		for _, status := range statuses {
			answers[status]++
		}
		if n := forwarded() - before; n != 0 {
			t.Errorf("%.80q: %v requests were forwarded", stream, n)
		}
		if len(statuses) > 0 && statuses[0] < 400 {
			t.Errorf("%.80q: answered %v", stream, statuses)
		}
	}

	// The same streams and valid ones, with bytes changed at random. The changes are the same in every run. Without a key,
	// nothing may be forwarded. With a key, exactly the admitted requests are forwarded.
	random := rand.New(rand.NewPCG(1, 2))
	streams := append([]string{fleet.GetPets("KEY"), fleet.PostPet("KEY", "Rex"), fleet.GetPets("KEY") + fleet.PostPet("KEY", "Rex")}, hostile...)
	for _, token := range []string{"ptg_live_" + strings.Repeat("0", 38), key.Token} {
		before, admittedBefore := forwarded(), admitted()
		for range edgeMutations / 2 {
			stream := mutated(random, strings.ReplaceAll(streams[random.IntN(len(streams))], "KEY", token))
			for _, status := range play(t, gateway, stream) {
				answers[status]++
			}
		}
		settled := func() bool { return forwarded()-before == admitted()-admittedBefore }
		testkit.Eventually(t, fleet.ReplyWithin, "as many forwarded as admitted", settled)
		if n := forwarded() - before; token != key.Token && n != 0 {
			t.Errorf("%v requests were forwarded without a key", n)
		}
	}

	server := 0
	for status, n := range answers {
		if status >= 500 {
			server += n
			t.Errorf("%d answers with status %d", n, status)
		}
	}
	if n := gateway.Metric(t, "petgate_gateway_responses_total", `class="5xx"`); n != 0 {
		t.Errorf("the gateway counts %v answers 5xx", n)
	}
	c := gateway.Client()
	defer c.Close()
	if got := c.Must(t, fleet.GetPets(key.Token)); got.Status != 200 {
		t.Errorf("afterwards: %d %s", got.Status, got.Body)
	}
	t.Logf("figure: %d hostile byte streams and %d mutations at a gateway process: %d answers 5xx, none forwarded without a key; "+
		"answers by status %v", len(hostile), edgeMutations, server, answers)
}

// mutated changes, removes, repeats or inserts a few bytes.
func mutated(random *rand.Rand, stream string) string {
	b := []byte(stream)
	for range 1 + random.IntN(3) {
		at := random.IntN(len(b))
		switch random.IntN(4) {
		case 0:
			b[at] = byte(random.IntN(256))
		case 1:
			b = append(b[:at:at], b[min(len(b), at+1+random.IntN(8)):]...)
		case 2:
			b = append(b[:at:at], append([]byte("\r\n"), b[at:]...)...)
		case 3:
			b = append(b[:at:at], append(b[max(0, at-16):at:at], b[at:]...)...)
		}
		if len(b) == 0 {
			return "x"
		}
	}
	return string(b)
}

// play sends a stream, ends it, and returns the statuses of all answers. If anything else arrives, the test fails.
func play(t *testing.T, p *fleet.Program, stream string) (statuses []int) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(fleet.ReplyWithin))
	_, _ = io.WriteString(conn, stream) // fails if the gateway has refused and closed the connection
	_ = conn.(*net.TCPConn).CloseWrite()
	in := bufio.NewReader(conn)
	asked := &http.Request{Method: http.MethodGet}
	if strings.HasPrefix(strings.TrimLeft(stream, "\r\n"), "HEAD ") {
		asked.Method = http.MethodHead
	}
	for {
		if _, err := in.Peek(1); err != nil {
			if isSlow(err) {
				t.Errorf("%.80q: the connection is not closed", stream)
			}
			return statuses
		}
		response, err := http.ReadResponse(in, asked)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
		}
		if err != nil {
			t.Errorf("%.80q: what follows %v is no answer: %v", stream, statuses, err)
			return statuses
		}
		if response.StatusCode == http.StatusContinue {
			continue
		}
		if response.Header.Get("X-RateLimit-Limit") == "" {
			t.Errorf("%.80q: an answer without limits: %s", stream, fmt.Sprint(response.Header))
		}
		statuses = append(statuses, response.StatusCode)
	}
}

func isSlow(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
