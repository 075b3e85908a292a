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

// Deadlines of an exchange. Where a deadline has to pass, it is so long that no other exchange fails on a busy machine. Elsewhere it is
// longer than a client waits, so a gateway that waits for the deadline fails the test.
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

func newFaultRig(t testing.TB, change func(*setup)) *rig {
	return newRig(t, func(s *setup) {
		s.UpstreamTimeout, s.ReadTimeout, s.ResponseBytesMax = noTimeout, patience, answerMax
		if change != nil {
			change(s)
		}
	})
}

// rawKeyed is the head of a POST with an Idempotency-Key and five bytes of content.
func rawKeyed(fields ...string) string {
	return rawPost(append([]string{keyField, "Content-Length: 5"}, fields...)...)
}

const keyField = "idempotency-KEY: one"

// TestUpstreamFaults lets an upstream go wrong in every way, for GET and for POST, and asks twice more after each.
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
	r := newFaultRig(t, func(s *setup) {
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
	if charged := r.admitted.Load(); charged != charges {
		t.Errorf("%d requests were charged %d", charges, charged)
	}
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
	if is != want {
		t.Errorf("got %s, want %s", is, want)
	}
	if strings.Contains(strings.ToLower(fmt.Sprint(got)), "evil") {
		t.Errorf("the client is told %v", got)
	}
}

// checkOwnAnswers sends two requests when the upstream works again: each exchange gets the answer to its own request.
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

// An upstream may send the content that a response to HEAD, or a 304, announces. If it comes late, no other client gets it.
func TestLateContentReachesNobody(t *testing.T) {
	late := says("X-Evil: evil", "Content-Length: 0")
	for status, request := range map[string]string{"200 OK": strings.Replace(rawGet(), "GET", "HEAD", 1), "304 Not Modified": rawGet()} {
		r := newFaultRig(t, nil)
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

// An upstream may refuse a large body before it has all of it, and read no more: its response counts.
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
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	r := newRig(t, func(s *setup) {
		s.Upstreams, s.BodyBytesMax, s.UpstreamTimeout, s.ReadTimeout = []string{"http://" + ln.Addr().String()}, size, noTimeout, patience
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
	r := newFaultRig(t, func(s *setup) { s.UpstreamTimeout = upstreamTimeout })
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

// A connection may close while it idles in the pool. A GET then has a second attempt. A POST has one only with an
// Idempotency-Key that the upstream gets, and whose operation knows such keys: without it, the upstream cannot know whether it has carried out the first one.
func TestWhatIsSentTwice(t *testing.T) {
	r := newFaultRig(t, func(s *setup) {
		s.with(api.Operation{ID: "sell", Method: "POST", Path: "/v1/sales", Scope: "pets:write"})
	})
	client := r.dial(t)
	for range 20 {
		for request, wants := range map[string]int{
			rawGet(): 2, rawKeyed() + "hello": 2, rawPost("Content-Length: 5") + "hello": 1, rawKeyed("Connection: Idempotency-Key") + "hello": 1,
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
