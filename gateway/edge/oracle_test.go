package edge_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/gateway/edge"
	"petgate/gateway/http1"
	"petgate/shared/api/code"
	"petgate/shared/testkit/must"
)

// Codes of refusals whose requests were admitted before, and codes after which the connection
// cannot be trusted any more.
const (
	chargedCodes = "no_such_route method_not_allowed insufficient_scope"
	closingCodes = "bad_request request_timeout body_too_large uri_too_long expectation_failed headers_too_large"
)

// canaryTarget is the target of a good request that is in no attack.
const canaryTarget = "/v1/pets?canary"

// verdictsOf turns responses and what the upstream saw into verdicts: each response that is not a
// refusal takes the next request that the upstream saw.
func verdictsOf(answers []answer, seen []upstreamRequest) (verdicts []string, err error) {
	for _, a := range answers {
		if err := a.refusal(); err != nil {
			return nil, err
		}
		switch {
		case a.Status >= 500:
			return nil, fmt.Errorf("a client caused a %d: %s", a.Status, a.Body)
		case a.Status >= 400:
			verdict := a.Code
			if verdict == "" { // an answer to HEAD has no body: all codes with its status are possible
				isOther := func(name string) bool { return code.StatusOf(name) != a.Status }
				verdict = strings.Join(slices.DeleteFunc(edge.Codes(), isOther), "|")
			}
			verdicts = append(verdicts, verdict)
		case len(seen) == 0:
			return nil, fmt.Errorf("a %d that the upstream did not give", a.Status)
		default:
			verdicts = append(verdicts, seen[0].String())
			seen = seen[1:]
		}
	}
	if len(seen) > 0 {
		return nil, fmt.Errorf("the upstream saw %q without a response", texts(seen))
	}
	return verdicts, nil
}

// agrees reports whether two lists of alternatives have one in common.
func agrees(got, want string) bool {
	for g := range strings.SplitSeq(got, "|") {
		if slices.Contains(strings.Split(want, "|"), g) {
			return true
		}
	}
	return false
}

// expectation is attack.want, parsed.
type expectation struct {
	verdicts   []string
	clientEnds bool // in the middle of a request
	closes     bool
}

func (a attack) expects() expectation {
	var e expectation
	for v := range strings.SplitSeq(a.want, "; ") {
		switch v {
		case "close":
			e.closes = true
		case gone:
			e.clientEnds = true
		default:
			e.verdicts = append(e.verdicts, v)
		}
	}
	return e
}

// check compares the answers with what the attack expects and with the counts of the rig.
func (r *rig) check(a attack, answers []answer, seen []upstreamRequest, before int64) error {
	got, err := verdictsOf(answers, seen)
	if err != nil {
		return err
	}
	want := a.expects()
	if want.clientEnds && len(got) == len(want.verdicts)+1 &&
		agrees(got[len(want.verdicts)], "bad_request|request_timeout") {
		got = got[:len(want.verdicts)] // this refusal of the unfinished request may be sent or not
	}
	if !slices.EqualFunc(got, want.verdicts, agrees) {
		return fmt.Errorf("got %q, want %q", got, want.verdicts)
	}
	if err := r.checkCharged(got, answers, len(seen), before); err != nil {
		return err
	}
	for _, s := range seen {
		if err := checkUpstreamRequest(a, s); err != nil {
			return err
		}
	}
	return nil
}

// checkCharged checks that exactly the requests that were admitted have been charged, and that a
// connection ends after what cannot be trusted.
func (r *rig) checkCharged(verdicts []string, answers []answer, seen int, before int64) error {
	admitted := seen
	for i, v := range verdicts {
		name, _, _ := strings.Cut(v, "|")
		if strings.Contains(chargedCodes, name) {
			admitted++
		}
		if strings.Contains(closingCodes, name) && !answers[i].Closes {
			return fmt.Errorf("%s leaves the connection open", v)
		}
	}
	if charged := int(r.admitted.Load() - before); charged != admitted {
		return fmt.Errorf("charged %d, admitted %d: %q", charged, admitted, verdicts)
	}
	return nil
}

// checkUpstreamRequest checks that the request has nothing that must not be forwarded, and
// everything that must be.
func checkUpstreamRequest(a attack, s upstreamRequest) error {
	head := strings.ToLower(strings.TrimPrefix(s.Head, s.Method+" "+s.Target))
	secrets := []string{"evil", "authorization", strings.ToLower(token[9:]), "expect:", "upgrade", "\nte:", "trailer"}
	for _, secret := range secrets {
		if strings.Contains(head, secret) {
			return fmt.Errorf("%q went to the upstream: %q", secret, s.Head)
		}
	}
	for _, name := range []string{
		"x-request-id", "x-tenant-id", "x-key-id", "x-plan", "x-forwarded-for", "x-forwarded-proto", "traceparent",
	} {
		if len(s.Fields[name]) != 1 || s.Fields[name][0] == "" {
			return fmt.Errorf("%s is %q upstream", name, s.Fields[name])
		}
	}
	if want, got := strings.Count(a.bytes, "kept"), strings.Count(head, "kept"); strings.Count(a.want, ";") == 0 &&
		got != want {
		return fmt.Errorf("%d of %d kept fields arrived: %q", got, want, s.Head)
	}
	return nil
}

// charged forgets what the upstream has seen, and returns how many requests were charged.
func (r *rig) charged() int64 {
	r.upstream.Seen()
	return r.admitted.Load()
}

// playSocket plays an attack on a real connection. It checks that the connection ends if the attack
// or the last answer says so. Otherwise it checks that the connection serves one more request.
func (r *rig) playSocket(t *testing.T, a attack) (answers []answer, seen []upstreamRequest, err error) {
	want, c := a.expects(), r.say(t, "")
	defer c.close()
	go func(to *net.TCPConn) {
		_, _ = io.WriteString(to, a.bytes) // refused before all of it was sent: the answers are checked below
		if want.clientEnds {
			_ = to.CloseWrite()
		}
	}(c.conn.(*net.TCPConn))
	isToEnd := want.closes || want.clientEnds
	for last := -1; len(answers) < len(want.verdicts) || isToEnd || answers[last].Closes; last++ {
		toHead := no
		if len(answers) == 0 && strings.HasPrefix(a.bytes, "HEAD ") {
			toHead = yes
		}
		next, err := readAnswer(c.in, toHead)
		switch {
		case err == nil:
			answers = append(answers, next)
			continue
		case errors.Is(err, os.ErrDeadlineExceeded), !ended(err), len(answers) < len(want.verdicts):
			err = fmt.Errorf("after %d answers: %w", len(answers), err)
		case last >= 0 && !want.clientEnds && !answers[last].Closes:
			err = errors.New("closed without saying so")
		default:
			err = nil
		}
		return answers, r.upstream.Seen(), err
	}
	seen = r.upstream.Seen()
	return answers, seen, r.canary(c)
}

// canary sends one more request on an open connection.
func (r *rig) canary(c *rawClient) error {
	if sang, err := c.try(rawTarget(canaryTarget)); err != nil || sang.Status != 200 {
		return fmt.Errorf("canary: %d %w", sang.Status, err)
	}
	if got := texts(r.upstream.Seen()); !slices.Equal(got, []string{"GET " + canaryTarget + " 0"}) {
		return fmt.Errorf("canary: upstream saw %q", got)
	}
	r.admitted.Add(-1)
	return nil
}

// TestOracle plays the whole corpus on real connections. Package http1 shows that requests are read
// in one way, however they are split.
func TestOracle(t *testing.T) {
	total := 0
	for theme, attacks := range themes {
		total += len(attacks)
		t.Run(theme, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(s *setup) {
				if slices.ContainsFunc(
					attacks, func(a attack) bool { return strings.Contains(a.want, "request_timeout") },
				) {
					s.ReadTimeout = 2 * time.Second
				}
			})
			for _, a := range attacks {
				before := r.charged()
				answers, seen, err := r.playSocket(t, a)
				if err == nil {
					err = r.check(a, answers, seen, before)
				}
				if err != nil {
					t.Errorf("%s (RFC %s): %q: %v", a.name, a.rfc, clip(a.bytes), err)
				}
			}
		})
	}
	fmt.Printf("figure: count oracle: %d inputs in %d themes\n", total, len(themes))
}

// readAll reads responses to the end of out.
func readAll(out []byte, toHead func(*bufio.Reader) bool) ([]answer, error) {
	in := bufio.NewReader(strings.NewReader(string(out)))
	var answers []answer
	for {
		a, err := readAnswer(in, toHead)
		if errors.Is(err, errNoAnswer) {
			return answers, nil
		}
		if err != nil {
			return answers, fmt.Errorf("answer %d: %w", len(answers)+1, err)
		}
		if last := len(answers) - 1; last >= 0 && answers[last].Closes {
			return answers, fmt.Errorf("answer %d came after one that closes", len(answers)+1)
		}
		answers = append(answers, a)
	}
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:200] + "…" + s[len(s)-80:]
	}
	return s
}

// patience is how long a test waits for what must come, and moment for what must not.
const patience, moment = time.Minute, 20 * time.Millisecond

// FuzzServe gives the whole serve path bytes that a client might send, cut in two at any point.
func FuzzServe(f *testing.F) {
	for _, attacks := range themes {
		for _, a := range attacks {
			if len(a.bytes) <= 4<<10 {
				f.Add([]byte(a.bytes), uint16(len(a.bytes)/2))
			}
		}
	}
	r := newRig(f)
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

// checkCounts checks what has to be true of every input: each request has one verdict, exactly the
// admitted requests were charged, the upstream saw no more requests than the input has valid keys,
// and no status is 5xx.
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

// isCut reports whether a body broke off because the upstream's did. Only a long body and a stream
// of events reach the client before their end.
func isCut(err error, said []byte) bool {
	isLong := len(said) > http1.PartBytesMax || longLength.Match(said) ||
		bytes.Contains(bytes.ToLower(said), []byte("text/event-stream"))
	return errors.Is(err, errCut) && isLong
}

var longLength = regexp.MustCompile(`(?i)content-length:[ \t]*0*[1-9][0-9]{4,}`)

// FuzzUpstream gives the forward path bytes that an upstream might send before it closes. The
// client gets a valid answer, and the next exchange gets its own.
func FuzzUpstream(f *testing.F) {
	for _, fault := range faults {
		if fault.says != "" && len(fault.says) <= 4<<10 {
			f.Add([]byte(fault.says), false)
			f.Add([]byte(fault.says), true)
		}
	}
	r := newRig(f)
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
		// The same, on a connection that is kept, with the second half late: it must not become
		// another exchange's response.
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
