package edge_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/api"
	"petgate/shared/api/code"
	"petgate/shared/testkit/must"
)

// fault is one way in which an upstream goes wrong, and the answer that the client gets.
type fault struct {
	name  string
	says  string // written when a request has been read
	hangs bool   // then nothing more, instead of closing
	twice bool   // GET may be tried a second time: the connection died before any byte came back
	cut   bool   // the client gets the beginning of a body, and then the end of the connection
	want  string // the code of the refusal, or status and body of the upstream's own answer; empty: upstream_failed
}

// In each entry of faults, the gateway has to notice something different.
var faults = []fault{
	{name: "closes before answering", twice: true},
	{name: "hangs before answering", hangs: true, want: "upstream_timeout"},
	{name: "closes in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n"},
	{name: "hangs in the fields", says: "HTTP/1.1 200 OK\r\nX: y\r\n", hangs: true, want: "upstream_timeout"},
	{name: "closes before content", says: says("Content-Length: 5")},
	{name: "closes in content", says: says("Content-Length: 5") + "evi"},
	{name: "closes in a chunk", says: says("Transfer-Encoding: chunked") + "5\r\nevi"},
	{name: "closes between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n"},
	{name: "hangs between chunks", says: says("Transfer-Encoding: chunked") + "4\r\nevil\r\n", hangs: true, want: "upstream_timeout"},

	{name: "garbage", says: "\x00\x01\x02\xff evil\r\n\r\n"},
	{name: "greets as SSH and waits", says: "SSH-2.0-OpenSSH_9.9\r\n", hangs: true},
	{name: "204 with a length", says: "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", hangs: true},
	{name: "status that is no number", says: "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "status of four digits", says: "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "status below 100", says: "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "status past 599", says: "HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n"},
	{name: "field without a colon", says: says("evil", "Content-Length: 0")},
	{name: "NUL in a field", says: says("X: ev\x00il", "Content-Length: 0")},
	{name: "length and chunks", says: says("Content-Length: 5", "Transfer-Encoding: chunked") + helloChunks},
	{name: "two lengths", says: says("Content-Length: 2", "Content-Length: 5") + "hello"},
	{name: "length of letters", says: says("Content-Length: five") + "hello"},
	{name: "length past int64", says: says("Content-Length: 9223372036854775808") + "hello"},
	{name: "coding it was not asked for", says: says("Transfer-Encoding: gzip, chunked") + helloChunks},
	{name: "chunk size of letters", says: says("Transfer-Encoding: chunked") + "evil\r\n"},
	{name: "no line end after a chunk", says: says("Transfer-Encoding: chunked") + "2\r\nevil0\r\n\r\n"},
	{name: "fields of 1 MB", says: says("X: " + repeat("a", 1<<20))},
	{name: "announces too much content", says: says("Content-Length: 1073741824") + "evil"},
	{name: "closes in long content", says: says("Content-Length: 100000") + long[:90_000], cut: true},
	{name: "hangs in long content", says: says("Content-Length: 100000") + long[:90_000], hangs: true, want: "upstream_timeout", cut: true},
	{name: "closes at the beginning of long content", says: says("Content-Length: 100000"), cut: true},
	{name: "closes in a chunk of long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long[:90_000], cut: true},
	{name: "closes between chunks of long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "\r\n", cut: true},
	{
		name: "closes before the last line of long content",
		says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "\r\n0\r\n",
		cut:  true,
	},
	{
		name:  "hangs between chunks of long content",
		says:  says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "\r\n",
		hangs: true,
		want:  "upstream_timeout",
		cut:   true,
	},
	{name: "sends a wrong chunk in long content", says: says("Transfer-Encoding: chunked") + "186a0\r\n" + long + "evil", cut: true},
	{name: "closes in a stream of events", says: events("Transfer-Encoding: chunked") + "6\r\ndata:", cut: true},
	{name: "closes between two events", says: events("Transfer-Encoding: chunked") + "8\r\ndata: 1\n\r\n", cut: true},
	{
		name: "chunks of too much content",
		says: says("Transfer-Encoding: chunked") + repeat("1000\r\n"+repeat("a", 4096)+"\r\n", 3*answerMax/4096),
		cut:  true,
	},
	{name: "too much content until it closes", says: says() + repeat("a", 3*answerMax), cut: true},
	{name: "switches protocols unasked", says: "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\n"},
	{name: "interim responses without end", says: repeat("HTTP/1.1 103 Early Hints\r\nLink: evil\r\n\r\n", 10000)},

	{name: "one interim response", says: "HTTP/1.1 100 Continue\r\n\r\n" + says("Content-Length: 2") + "[]", want: "200 []"},
	{name: "content until it closes", says: says() + "[]", want: "200 []"},
	{name: "HTTP/1.0", says: "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n[]", want: "200 []"},
	{name: "chunks", says: says("Transfer-Encoding: chunked") + "1\r\n[\r\n1\r\n]\r\n0\r\n\r\n", want: "200 []"},
	{name: "more than its length", says: says("Content-Length: 2") + "[]evil", want: "200 []"},
	{name: "a second response", says: says("Content-Length: 2") + "[]" + says("Content-Length: 4") + "evil", hangs: true, want: "200 []"},
	{
		name: "our own fields",
		says: says(
			"Content-Length: 2", "X-RateLimit-Limit: evil", "X-RateLimit-Remaining: evil", "X-RateLimit-Reset: evil",
			"X-RateLimit-Used: evil", "RateLimit: evil", "RateLimit-Policy: evil", "X-Request-Id: evil",
			"X-Request-Cost: evil", "Retry-After: evil", "X-Key-Expires: evil", "Deprecation: evil", "Sunset: evil",
			"X-Stability: evil", "Server: evil", "Date: evil", "X-Gateway-Secret: evil",
		) + "[]",
		want: "200 []",
	},
	{
		name: "hop-by-hop fields",
		says: says(
			"Content-Length: 2", "Connection: X-Hop", "X-Hop: evil", "Keep-Alive: evil", "Proxy-Connection: evil",
			"Upgrade: evil", "TE: evil", "Trailer: X-evil", "Proxy-Authenticate: evil",
			"Proxy-Authentication-Info: evil",
		) + "[]", want: "200 []",
	},
	{
		name: "401, which is about the gateway",
		says: "HTTP/1.1 401 Evil\r\nWWW-Authenticate: evil\r\nContent-Length: 4\r\n\r\nevil", want: "upstream_refused",
	},
	{name: "its own 503", says: "HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", want: "503 {}"},
	{name: "its own 429", says: "HTTP/1.1 429 Slow\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", want: "429 {}"},
}

// long is content that passes through in parts.
var long = repeat("a", 100_000)

// events is the head of a stream of events.
func events(field string) string {
	return rawBare("HTTP/1.1 200 OK", "Content-Type: text/event-stream; charset=utf-8", field)
}

// Deadlines of an exchange. Where a deadline has to pass, it is so long that no other exchange
// fails on a busy machine. Elsewhere it is longer than a client waits, so a gateway that waits for
// the deadline fails the test.
const (
	upstreamTimeout = 3 * time.Second
	noTimeout       = 2 * patience
)

// answerMax is how much content an upstream may answer in these tests.
const answerMax = 128 << 10

func says(fields ...string) string {
	return rawBare(append([]string{"HTTP/1.1 200 OK", "Content-Type: application/json"}, fields...)...)
}

func (f fault) answer(c net.Conn, _ upstreamRequest) bool {
	_, _ = io.WriteString(c, f.says)
	if f.hangs {
		_, _ = c.Read(make([]byte, 1)) // until the gateway gives the connection up
	}
	return false
}

// bounded changes a rig so that answers have a limit.
func bounded(s *setup) { s.ResponseBytesMax = answerMax }

// rawKeyed is the head of a POST with an Idempotency-Key and five bytes of content.
func rawKeyed(fields ...string) string {
	return rawPost(append([]string{keyField, "Content-Length: 5"}, fields...)...)
}

const keyField = "idempotency-KEY: one"

// TestUpstreamFaults lets an upstream go wrong in every way, for GET and for POST, and asks twice
// more after each.
func TestUpstreamFaults(t *testing.T) {
	for _, f := range faults {
		if !f.isLate() {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				f.play(t, rawGet(), rawPost("Content-Length: 5")+"hello", rawKeyed()+"hello", rawGet())
			})
		}
	}
}

// TestLateUpstreams plays the faults for which a timeout has to pass, all at once.
func TestLateUpstreams(t *testing.T) {
	t.Parallel()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, f := range faults {
		for i, request := range []string{rawPost("Content-Length: 5") + "hello", rawKeyed() + "hello", rawGet()} {
			if f.isLate() {
				waiting.Go(func() { t.Run(fmt.Sprint(f.name, " ", i), func(t *testing.T) { f.play(t, request) }) })
			}
		}
	}
}

func (f fault) isLate() bool { return f.want == "upstream_timeout" }

func (f fault) play(t *testing.T, requests ...string) {
	r := newRig(t, bounded, func(s *setup) {
		if f.isLate() {
			s.UpstreamTimeout = upstreamTimeout
		}
	})
	client, charges := r.dial(t), int64(3*len(requests))
	if f.isLate() { // on a used connection
		r.checkOwnAnswers(t, client)
		charges += 2
	}
	for _, request := range requests {
		r.upstream.Answer(f.answer)
		got, err := client.try(request)
		mayRepeat := strings.HasPrefix(request, "GET") || strings.Contains(request, keyField)
		if seen := len(r.upstream.Seen()); !mayRepeat && seen != 1 || seen < 1 || seen > 2 || seen == 2 && !f.twice {
			t.Errorf("the upstream saw it %d times", seen)
		}
		if f.cut != errors.Is(err, errCut) || !f.cut && err != nil {
			t.Errorf("got %v", err)
		}
		if !f.cut {
			checkFault(t, f, got)
		}
		r.checkOwnAnswers(t, client)
	}
	must.Equal(t, r.admitted.Load(), charges, "what %d requests were charged", len(requests))
}

func checkFault(t *testing.T, f fault, got answer) {
	t.Helper()
	want, is := cmp.Or(f.want, "upstream_failed"), fmt.Sprintf("%d %s", got.Status, got.Body)
	if status := code.StatusOf(want); status != 0 {
		if err := got.refusal(); err != nil || got.Status != status {
			t.Errorf("got %d, want %d: %v", got.Status, status, err)
		}
		is = got.Code
	}
	must.Equal(t, is, want, "the answer")
	must.Equal(t, strings.Contains(strings.ToLower(fmt.Sprint(got)), "evil"), false, "whether the client is told %v",
		got)
}

// checkOwnAnswers sends two requests when the upstream works again: each exchange gets the answer
// to its own request.
func (r *rig) checkOwnAnswers(t *testing.T, client *rawClient) {
	t.Helper()
	r.upstream.Answer(echo)
	for _, target := range []string{"/v1/pets?first", "/v1/pets?second"} {
		if got := client.ask(t, rawTarget(target)); got.Status != 200 || got.Body != `"`+target+`"` {
			t.Errorf("the next exchange got %d %q, want %s", got.Status, got.Body, target)
		}
	}
	r.upstream.Seen()
}

// An upstream may send the content that a response to HEAD, or a 304, announces. If it comes late,
// no other client gets it.
func TestLateContentReachesNobody(t *testing.T) {
	late := says("X-Evil: evil", "Content-Length: 0")
	for status, request := range map[string]string{
		"200 OK":           strings.Replace(rawGet(), "GET", "HEAD", 1),
		"304 Not Modified": rawGet(),
	} {
		r := newRig(t, bounded)
		r.upstream.Answer(func(c net.Conn, q upstreamRequest) bool {
			if q.Nth > 1 { // it comes when the connection is used again
				return saying(late)(c, q)
			}
			return saying("HTTP/1.1 "+status+"\r\nContent-Length: "+decimal(len(late))+"\r\n\r\n")(c, q)
		})
		client := r.dial(t)
		for range 25 {
			if got := client.ask(t, request); strings.Contains(fmt.Sprint(got), "evil") {
				t.Fatalf("%s: got %v", status, got)
			}
		}
	}
}

// echo answers with the target.
func echo(c net.Conn, r upstreamRequest) bool {
	body := `"` + r.Target + `"`
	return saying(says("Content-Length: "+decimal(len(body)))+body)(c, r)
}

// An upstream may refuse a large body before it has all of it, and read no more: its response
// counts.
func TestUpstreamRefusesEarly(t *testing.T) {
	const size = 8 << 20 // more than the kernel keeps for a reader that does not read
	ln := must.Get[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close() // when the test ends: until then it reads no more
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c,
				"HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	r := newRig(t, func(s *setup) {
		s.Upstreams, s.BodyBytesMax = []string{"http://" + ln.Addr().String()}, size
	})
	for range 2 {
		client := r.say(t, rawPost("Content-Length: "+decimal(size)))
		client.send(repeat("a", size))
		if got := client.next(t); got.Status != 413 || got.Body != "{}" || !got.Closes {
			t.Errorf("got %d %s, closes: %t", got.Status, got.Body, got.Closes)
		}
	}
}

// Content that arrives byte by byte does not extend the deadline of its exchange.
func TestUpstreamTrickles(t *testing.T) {
	t.Parallel()
	r := newRig(t, bounded, func(s *setup) { s.UpstreamTimeout = upstreamTimeout })
	r.upstream.Answer(func(c net.Conn, _ upstreamRequest) bool {
		_, err := io.WriteString(c, says("Content-Length: 60000"))
		for err == nil {
			time.Sleep(upstreamTimeout / 50) // the pace is the fault
			_, err = io.WriteString(c, "a")
		}
		return false
	})
	r.ask(t, rawGet()).expect(t, "a trickle", "504 upstream_timeout")
}

// A connection may close while it idles in the pool. A GET then has a second attempt. A POST has
// one only with an Idempotency-Key that the upstream gets, and whose operation knows such keys:
// without it, the upstream cannot know whether it has carried out the first one.
func TestWhatIsSentTwice(t *testing.T) {
	r := newRig(t, bounded, func(s *setup) {
		s.with(api.Operation{ID: "sell", Method: "POST", Path: "/v1/sales", Scope: "pets:write"})
	})
	client := r.dial(t)
	for range 20 {
		for request, wants := range map[string]int{
			rawGet():                               2,
			rawKeyed() + "hello":                   2,
			rawPost("Content-Length: 5") + "hello": 1,
			rawKeyed("Connection: Idempotency-Key") + "hello":         1,
			strings.Replace(rawKeyed(), "pets", "sales", 1) + "hello": 1,
		} {
			r.upstream.Answer(nil)
			client.ask(t, rawGet())
			r.upstream.Seen()
			r.upstream.Answer(func(c net.Conn, request upstreamRequest) bool {
				return request.Nth == 1 && echo(c, request) // a request on a used connection is read and dropped
			})
			want := map[int]string{1: "502 upstream_failed", 2: "200"}[wants]
			client.ask(t, request).expect(t, clip(request), want)
			if seen := r.upstream.Seen(); len(seen) != wants || seen[0].Body != seen[wants-1].Body {
				t.Fatalf("%q was seen %q", request, texts(seen))
			}
		}
	}
}
