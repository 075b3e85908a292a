package edge_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// A stage that panics costs its own exchange: a 500 by the contract and one line in each log.
// Everyone else is served.
func TestPanic(t *testing.T) {
	for name, request := range map[string]string{
		"lookup":    rawGet(),
		"fresh":     rawGet(),
		"fail":      rawBearer(unknownToken),
		"take":      rawGet(),
		"known":     rawBearer(suspendedToken),
		"attempts":  rawKey(), // while the response is written
		"clock":     rawGet(),
		"statement": rawUsage(""),
		"count":     rawGet(),
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			broken.Store(true)
			r := newRig(t, bounded, func(s *setup) {
				s.fails = func(dependency string) {
					if dependency == name && broken.Load() {
						panic("planted")
					}
				}
				clock := s.Clock
				s.Clock = func() time.Time { s.fails("clock"); return clock() }
			})
			got := r.ask(t, request)
			must.Do(t, got.refusal())
			if name != "count" {
				got.expect(t, name, "500 internal")
			}
			r.awaitLines(t, 1)
			must.Equal(t, strings.Contains(r.log.String(), "planted"), true, "whether the log tells of it: %s", r.log)
			broken.Store(false)
			for range 3 {
				r.ask(t, rawGet()).expect(t, "afterwards", "200")
			}
		})
	}
}

type change struct {
	change func(e *directory.Entry) (isKnown bool)
	want   string
}

// lookup finds keys, which have the change once it is made.
func (c change) lookup(isMade *atomic.Bool) func(apikey.Hash) (directory.Entry, bool) {
	return func(h apikey.Hash) (directory.Entry, bool) {
		e, found := entries[h]
		if found && isMade.Load() {
			found = c.change(&e)
		}
		return e, found
	}
}

// changes are what an operator may do to a key while its request is under way, and what the request
// gets.
var changes = map[string]change{
	"revoked":   {func(e *directory.Entry) bool { e.RevokedAt = instant.Of(now); return true }, "401 invalid_api_key"},
	"rotated":   {func(e *directory.Entry) bool { e.GraceEndsAt = instant.Of(now); return true }, "401 invalid_api_key"},
	"suspended": {func(e *directory.Entry) bool { e.Suspended = true; return true }, "403 tenant_suspended"},
	"banned":    {func(e *directory.Entry) bool { e.BannedUntil = instant.Of(now.Add(time.Hour)); return true }, "429 key_banned"},
	"deleted":   {func(e *directory.Entry) bool { *e = directory.Entry{}; return false }, "401 invalid_api_key"},
}

// A change that is confirmed while a body arrives, or while the quota is asked for more than a
// second, holds for the request. It is not sent, and charged only if the quota was asked before. If
// a part of a long body has been sent, the upstream gets no end of the request.
func TestChangeWhileARequestIsUnderWay(t *testing.T) {
	f := func(when, start, rest string, charged int64, hasBegun func(*rig, *rawClient) bool) {
		for name, c := range changes {
			t.Run(when+", "+name, func(t *testing.T) {
				t.Parallel()
				var isMade atomic.Bool
				r := newRig(t, streams, func(s *setup) {
					s.lookup, s.WriteTimeout = c.lookup(&isMade), time.Second // it does not begin before the response
					take := s.take
					s.take = func(a quotas.Request) (quota.Verdict, error) {
						defer func() {
							if rest == "" {
								time.Sleep(1100 * time.Millisecond) // a slow Redis
							}
						}()
						return take(a)
					}
				})
				client := r.say(t, start)
				testkit.Eventually(t, patience, "the request is under way", func() bool { return hasBegun(r, client) })
				isMade.Store(true)
				client.send(rest)
				got := client.next(t)
				got.expect(t, when, c.want)
				limits := got.field("ratelimit-policy") // only a valid key sees those of its tenant
				isEnded := strings.HasPrefix(c.want, "401")
				must.Equal(t, strings.Contains(limits, "failed-attempts"), isEnded, "the limits are %s", limits)
				if seen := r.upstream.Seen(); len(seen) > 0 || r.admitted.Load() != charged ||
					len(rest) > bodyMax && !got.Closes {
					t.Errorf("the upstream saw %q, %d were charged, the connection closes: %t", texts(seen),
						r.admitted.Load(), got.Closes)
				}
			})
		}
	}
	length, chunked := rawPost("Content-Length: 30000"), rawPost("Transfer-Encoding: chunked")
	isRead := func(r *rig, _ *rawClient) bool { // more than without a key
		return r.metric(t, "petgate_gateway_body_bytes") > 16<<10
	}
	f("a length", length+repeat("a", 20_000), repeat("a", 10_000), 0, isRead)
	f("chunks", chunked+chunksOf(repeat("a", 20_000), 20_000), chunksOf(repeat("a", 10_000), 10_000)+"0\r\n\r\n", 0,
		isRead)

	isWanted := func(_ *rig, c *rawClient) bool { _, err := c.in.Peek(len("HTTP/1.1 100")); return err == nil }
	f("an expected length", rawPost("Content-Length: 5", "Expect: 100-continue"), "hello", 0, isWanted)
	f("expected chunks", rawPost("Transfer-Encoding: chunked", "Expect: 100-continue"), helloChunks, 0, isWanted)

	f("the quota is asked", rawGet(), "", 1, func(r *rig, _ *rawClient) bool { return r.takes.Load() == 1 })

	isSent := func(r *rig, _ *rawClient) bool { return r.upstream.Dials() == 1 }
	half, rest := repeat("a", streamed/2), repeat("a", streamed-streamed/2)
	f("a long length", rawPost("Content-Length: "+decimal(streamed))+half, rest, 1, isSent)
	f("long chunks", chunked+chunksOf(half, 10_000), chunksOf(rest, 10_000)+"0\r\n\r\n", 1, isSent)
}

// secret is what no log, metric or upstream may hold: a good part of a token, wherever it comes
// from.
var secret = regexp.MustCompile(`ptg_(live|test)_[0-9A-Za-z]{8}`)

// findSecrets cuts tokens out of text, with what stands around them.
func findSecrets(text string) []string {
	var found []string
	for _, at := range secret.FindAllStringIndex(text, -1) {
		found = append(found, text[max(0, at[0]-80):at[0]]+"…")
	}
	return found
}

// checkLogs checks everything that was logged: it has no token, and each line is one JSON object.
func (r *rig) checkLogs(t testing.TB) {
	t.Helper()
	for _, text := range []string{r.accessLog.String(), r.log.String()} {
		for _, found := range findSecrets(text) {
			t.Errorf("a log holds a token: %s", found)
		}
		for line := range strings.Lines(text) {
			must.Do(t, checkLogLine(line))
		}
	}
}

// awaitLines waits until the access log holds n lines, and no more.
func (r *rig) awaitLines(t testing.TB, n int) {
	t.Helper()
	testkit.Eventually(t, patience, "the access log", func() bool { return len(r.accessLog.Lines()) >= n })
	must.Equal(t, len(r.accessLog.Lines()), n, "access log lines: %s", r.accessLog)
}

func checkLogLine(line string) error {
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return fmt.Errorf("log line %q: %w", line, err)
	}
	for _, c := range line {
		if c < ' ' && c != '\n' || c == 0x7f {
			return fmt.Errorf("log line %q holds a control character", line)
		}
	}
	return nil
}

// A client cannot forge the access log: whatever it sends, its exchange is one line, which does not
// look like another exchange.
func TestAccessLogCannotBeForged(t *testing.T) {
	const forged = `","status":200,"key":"key_forged","x":"`
	r, total := newRig(t), 0
	for name, request := range map[string]string{
		"target":           rawTarget("/v1/pets?a=" + strings.ReplaceAll(forged, `"`, "%22")),
		"encoded line end": rawTarget("/v1/pets?a=%0a{%22status%22:200}"),
		"raw line end":     rawTarget("/v1/pets\n{\"status\":200}"),
		"escape":           rawTarget("/v1/pets?\x1b[2J"),
		"method":           rawStart("GET\"'{} /v1/pets HTTP/1.1"),
		"long method":      rawStart(repeat("A", 5000) + " /v1/pets HTTP/1.1"),
		"host":             rawHost("Host: " + forged),
		"user agent":       rawGet("User-Agent: " + forged),
		"non-UTF-8 agent":  rawGet("User-Agent: \xff\xfe" + forged),
		"request ID":       rawGet("X-Request-Id: " + forged),
		"forwarder":        rawGet("X-Forwarded-For: " + forged),
		"token in a query": rawTarget("/v1/pets?access_token=" + token),
		"token in a path":  rawTarget("/v1/pets/" + token),
		"token for method": rawStart(token + " /v1/pets HTTP/1.1"),
		"token for host":   rawHost("Host: " + token),
		"token for agent":  rawGet("User-Agent: " + token),
		"token for type":   rawPost("Content-Type: "+token, "Content-Length: 0"),
		"token for ID":     rawGet("X-Request-Id: " + token),
		"token for length": rawPost("Content-Length: " + token),
		"token unframed":   token + "\r\n\r\n",
		"token as a field": rawGet(token),
		"mistyped token":   rawKey("Authorization: Bearer " + mistyped(token)),
		"token in Basic":   rawKey("Authorization: Basic " + token),
	} {
		answers, out, err := r.playAll(guess, []byte(request))
		if err != nil || len(answers) == 0 {
			t.Fatalf("%s: %d answers, %v", name, len(answers), err)
		}
		total += len(answers)
		must.Equal(t, len(findSecrets(string(out))), 0, "tokens in the answer to %s", name)
	}
	r.awaitLines(t, total)
	must.Equal(t, strings.Contains(r.accessLog.String(), `"key":"key_forged"`), false, "whether a key is forged: %s",
		r.accessLog)
}
