package edge_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/testkit/must"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// FuzzServe gives the whole serve path bytes that a client might send, cut in two at any point.
func FuzzServe(f *testing.F) {
	for _, attacks := range themes {
		for _, a := range attacks {
			if len(a.bytes) <= 4<<10 {
				f.Add([]byte(a.bytes), uint16(len(a.bytes)/2))
			}
		}
	}
	r := newRig(f, nil)
	f.Fuzz(func(t *testing.T, input []byte, cut uint16) {
		if len(input) > 128<<10 {
			return
		}
		r.trimLogs(t)
		before := r.charged()
		at := min(int(cut), len(input))
		answers, out, err := r.playAll(guess, input[:at], input[at:])
		if err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		must.Do(t, r.checkCounts(input, answers, before))
	})
}

// trimLogs checks and empties the logs when they are large, so that they do not grow without limit.
func (r *rig) trimLogs(t *testing.T) {
	if r.accessLog.Len() > 1<<20 || r.log.Len() > 1<<20 {
		r.checkLogs(t)
		r.accessLog.Reset()
		r.log.Reset()
	}
}

// checkCounts checks what has to be true of every input: each request has one verdict, exactly the admitted requests were charged,
// the upstream saw no more requests than the input has valid keys, and no status is 5xx.
func (r *rig) checkCounts(input []byte, answers []answer, before int64) error {
	seen := r.upstream.Seen()
	if err := r.upstream.Problem(); err != nil {
		return err
	}
	got, err := verdictsOf(answers, seen)
	if err != nil {
		return err
	}
	keys := 0
	for _, valid := range []string{token, readerToken, renamedToken} {
		keys += bytes.Count(input, []byte(valid))
	}
	if len(seen) > keys {
		return fmt.Errorf("the upstream saw %q for %d keys", texts(seen), keys)
	}
	return r.checkCharged(got, answers, len(seen), before)
}

// isCut reports whether a body broke off because the upstream's did. Only a long body and a stream of events reach the client before their
// end.
func isCut(err error, said []byte) bool {
	isLong := len(said) > http1.PartBytesMax || longLength.Match(said) || bytes.Contains(bytes.ToLower(said), []byte("text/event-stream"))
	return errors.Is(err, errCut) && isLong
}

var longLength = regexp.MustCompile(`(?i)content-length:[ \t]*0*[1-9][0-9]{4,}`)

// FuzzUpstream gives the forward path bytes that an upstream might send before it closes. The client gets a valid
// answer, and the next exchange gets its own.
func FuzzUpstream(f *testing.F) {
	for _, fault := range faults {
		if fault.says != "" && len(fault.says) <= 4<<10 {
			f.Add([]byte(fault.says), false)
			f.Add([]byte(fault.says), true)
		}
	}
	r := newRig(f, nil)
	f.Fuzz(func(t *testing.T, said []byte, post bool) {
		if len(said) > 128<<10 {
			return
		}
		r.trimLogs(t)
		play := func(reply func(net.Conn, upstreamRequest) bool, requests ...string) []answer {
			r.upstream.Seen()
			r.upstream.Answer(reply)
			answers, out, err := r.playAll(no, []byte(strings.Join(requests, "")))
			if err != nil && !isCut(err, said) {
				t.Fatalf("%v in %q", err, out)
			}
			return answers
		}
		request := rawGet()
		if post {
			request = rawPost("Content-Length: 5") + "hello"
		}
		play(func(c net.Conn, _ upstreamRequest) bool {
			_, _ = c.Write(said)
			return false
		}, request)
		if seen := r.upstream.Seen(); len(seen) > 1 && post {
			t.Fatalf("the upstream saw %q", texts(seen))
		}
		// The same, on a connection that is kept, with the second half late: it must not become another exchange's response.
		play(func(c net.Conn, q upstreamRequest) bool {
			if q.Nth > 1 {
				return plainAnswer(c, q)
			}
			_, _ = c.Write(said[:len(said)/2])
			go func() {
				_, _ = c.Write(said[len(said)/2:])
				_ = c.Close()
			}()
			return true
		}, request, rawGet())
		r.upstream.hangUp()
		const own = `[{"id":1,"name":"its own"}]`
		answers := play(saying(says("Content-Length: "+decimal(len(own)))+own), rawGet())
		if len(answers) != 1 || answers[0].Body != own {
			t.Fatalf("the next exchange got %+v", answers)
		}
	})
}
