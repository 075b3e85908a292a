package edge_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// refusals has the codes that the corpus may cause. For each it says what the client sees, and whether the request is charged.
var refusals = map[string]struct {
	status  int
	charged bool // it was admitted
	closes  bool // the connection cannot be trusted any more
}{
	"bad_request": {400, false, true}, "request_timeout": {408, false, true}, "body_too_large": {413, false, true},
	"uri_too_long": {414, false, true}, "expectation_failed": {417, false, true}, "headers_too_large": {431, false, true},
	"missing_api_key": {401, false, false}, "malformed_api_key": {401, false, false}, "invalid_api_key": {401, false, false},
	"address_not_allowed": {403, false, false}, "tenant_suspended": {403, false, false}, "quota_not_set": {403, false, false},
	"key_banned": {429, false, false}, "minute_quota_exceeded": {429, false, false},
	"no_such_route": {404, true, false}, "method_not_allowed": {405, true, false}, "insufficient_scope": {403, true, false},
}

// canaryTarget is the target of a good request that is in no attack.
const canaryTarget = "/v1/pets?canary"

// verdictsOf turns responses and what the upstream saw into verdicts: each response that is not a refusal takes the next
// request that the upstream saw.
func verdictsOf(answers []answer, seen []upstreamRequest) (verdicts []string, err error) {
	for _, a := range answers {
		if err := a.refusal(); err != nil {
			return nil, err
		}
		switch {
		case a.Status >= 500:
			return nil, fmt.Errorf("a client caused a %d: %s", a.Status, a.Body)
		case a.Status >= 400:
			code := a.Code
			if code == "" { // an answer to HEAD has no body: all codes with its status are possible
				for name, r := range refusals {
					if r.status == a.Status {
						code += "|" + name
					}
				}
			}
			verdicts = append(verdicts, strings.TrimPrefix(code, "|"))
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
func (r *rig) check(a attack, answers []answer, before int64) error {
	seen := r.upstream.Seen()
	got, err := verdictsOf(answers, seen)
	if err != nil {
		return err
	}
	want := a.expects()
	if want.clientEnds && len(got) == len(want.verdicts)+1 && agrees(got[len(want.verdicts)], "bad_request|request_timeout") {
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

// checkCharged checks that exactly the requests that were admitted have been charged, and that a connection ends after what cannot be
// trusted.
func (r *rig) checkCharged(verdicts []string, answers []answer, seen int, before int64) error {
	admitted := seen
	for i, v := range verdicts {
		name, _, _ := strings.Cut(v, "|")
		if refusals[name].charged {
			admitted++
		}
		if refusals[name].closes && !answers[i].Closes {
			return fmt.Errorf("%s leaves the connection open", v)
		}
	}
	if charged := int(r.admitted.Load() - before); charged != admitted {
		return fmt.Errorf("charged %d, admitted %d: %q", charged, admitted, verdicts)
	}
	return nil
}

// checkUpstreamRequest checks that the request has nothing that must not be forwarded, and everything that must be.
func checkUpstreamRequest(a attack, s upstreamRequest) error {
	head := strings.ToLower(strings.TrimPrefix(s.Head, s.Method+" "+s.Target))
	for _, secret := range []string{"evil", "authorization", strings.ToLower(token[9:]), "expect:", "upgrade", "\nte:", "trailer"} {
		if strings.Contains(head, secret) {
			return fmt.Errorf("%q went to the upstream: %q", secret, s.Head)
		}
	}
	for _, name := range []string{"x-request-id", "x-tenant-id", "x-key-id", "x-plan", "x-forwarded-for", "x-forwarded-proto", "traceparent"} {
		if len(s.Fields[name]) != 1 || s.Fields[name][0] == "" {
			return fmt.Errorf("%s is %q upstream", name, s.Fields[name])
		}
	}
	if want, got := strings.Count(a.bytes, "kept"), strings.Count(head, "kept"); strings.Count(a.want, ";") == 0 && got != want {
		return fmt.Errorf("%d of %d kept fields arrived: %q", got, want, s.Head)
	}
	return nil
}

// charged forgets what the upstream has seen, and returns how many requests were charged.
func (r *rig) charged() int64 {
	r.upstream.Seen()
	return r.admitted.Load()
}

// playSocket plays an attack on a real connection. It checks that the connection ends if the attack or the last answer
// says so. Otherwise it checks that the connection serves one more request.
func (r *rig) playSocket(a attack) ([]answer, error) {
	want := a.expects()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	go func() {
		_, _ = io.WriteString(c, a.bytes) // refused before all of it was sent: the answers are checked below
		if want.clientEnds {
			_ = c.(*net.TCPConn).CloseWrite()
		}
	}()
	in := bufio.NewReader(c)
	var answers []answer
	for last := -1; len(answers) < len(want.verdicts) || want.closes || want.clientEnds || answers[last].Closes; last++ {
		toHead := no
		if len(answers) == 0 && strings.HasPrefix(a.bytes, "HEAD ") {
			toHead = yes
		}
		next, err := readAnswer(in, toHead)
		if err != nil {
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				return answers, fmt.Errorf("after %d answers the connection stays open", len(answers))
			}
			if !ended(err) || len(answers) < len(want.verdicts) {
				return answers, fmt.Errorf("after %d answers: %w", len(answers), err)
			}
			if last >= 0 && !want.clientEnds && !answers[last].Closes {
				return answers, fmt.Errorf("closed without saying so")
			}
			return answers, nil
		}
		answers = append(answers, next)
	}
	return answers, r.canary(c, in)
}

// canary sends one more request on an open connection.
func (r *rig) canary(c net.Conn, in *bufio.Reader) error {
	seen := r.upstream.Seen()
	if _, err := c.Write([]byte(rawTarget(canaryTarget))); err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	sang, err := readAnswer(in, no)
	if err != nil || sang.Status != 200 {
		return fmt.Errorf("canary: %d %w", sang.Status, err)
	}
	if got := texts(r.upstream.Seen()); !slices.Equal(got, []string{"GET " + canaryTarget + " 0"}) {
		return fmt.Errorf("canary: upstream saw %q", got)
	}
	r.admitted.Add(-1)
	r.upstream.unsee(seen)
	return nil
}

// TestOracle plays the whole corpus on real connections. Package http1 shows that requests are read in one way, however they are split.
func TestOracle(t *testing.T) {
	total := 0
	for theme, attacks := range themes {
		total += len(attacks)
		t.Run(theme, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(s *setup) {
				if slices.ContainsFunc(attacks, func(a attack) bool { return strings.Contains(a.want, "request_timeout") }) {
					s.ReadTimeout = 500 * time.Millisecond
				}
			})
			for _, a := range attacks {
				before := r.charged()
				answers, err := r.playSocket(a)
				if err == nil {
					err = r.check(a, answers, before)
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
