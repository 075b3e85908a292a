package edge_test

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"petgate/gateway/directory"
	"petgate/gateway/quotas"
	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
	"petgate/shared/testkit/must"
)

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

// changes are what an operator may do to a key while its request is under way, and what the request gets.
var changes = map[string]change{
	"revoked":   {func(e *directory.Entry) bool { e.RevokedAt = instant.Of(now); return true }, "invalid_api_key"},
	"rotated":   {func(e *directory.Entry) bool { e.GraceEndsAt = instant.Of(now); return true }, "invalid_api_key"},
	"suspended": {func(e *directory.Entry) bool { e.Suspended = true; return true }, "tenant_suspended"},
	"banned":    {func(e *directory.Entry) bool { e.BannedUntil = instant.Of(now.Add(time.Hour)); return true }, "key_banned"},
	"deleted":   {func(e *directory.Entry) bool { *e = directory.Entry{}; return false }, "invalid_api_key"},
}

// A change that is confirmed while a body arrives holds for the request: it is neither charged nor sent.
func TestChangeWhileABodyArrives(t *testing.T) {
	for name, c := range changes {
		var isChanged atomic.Bool
		r := newRig(t, func(s *setup) { s.lookup = c.lookup(&isChanged) })
		var sending []*rawClient
		rests := []string{repeat("a", 10_000), "2710\r\n" + repeat("a", 10_000) + "\r\n0\r\n\r\n", "hello", "5\r\nhello\r\n0\r\n\r\n"}
		for i, start := range []string{
			rawPost("Content-Length: 30000") + repeat("a", 20_000),
			rawPost("Transfer-Encoding: chunked") + "4e20\r\n" + repeat("a", 20_000) + "\r\n",
			rawPost("Content-Length: 5", "Expect: 100-continue"),
			rawPost("Transfer-Encoding: chunked", "Expect: 100-continue"),
		} {
			client := r.say(t, rawGet()+start)
			if got, err := readAnswer(client.in, no); err != nil || got.Status != 200 {
				t.Fatalf("%s: before it: %d %v", name, got.Status, err)
			}
			if i >= 2 {
				must.Get[int](t)(client.in.Discard(len("HTTP/1.1 100 Continue\r\n\r\n")))
			}
			sending = append(sending, client)
		}
		charged := r.admitted.Load()
		isChanged.Store(true)
		for i, client := range sending {
			must.Get[int](t)(io.WriteString(client.conn, rests[i]))
			if got, err := readAnswer(client.in, no); err != nil || codeOf(got) != c.want {
				t.Errorf("%s: body %d got %d %s %v, want %s", name, i, got.Status, codeOf(got), err, c.want)
			}
		}
		if n := r.admitted.Load() - charged; n != 0 || len(r.upstream.Seen()) != len(sending) {
			t.Errorf("%s: %d were charged, and the upstream saw %q", name, n, texts(r.upstream.Seen()))
		}
	}
}

// The same holds if the quota takes more than a second, but the request is charged.
func TestChangeWhileTheQuotaIsAsked(t *testing.T) {
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var isChanged atomic.Bool
			r := newRig(t, func(s *setup) {
				s.lookup = c.lookup(&isChanged)
				take := s.take
				s.take = func(a quotas.Request) (quota.Verdict, error) {
					isChanged.Store(true)
					<-time.After(1100 * time.Millisecond) // a slow Redis
					return take(a)
				}
			})
			if got := r.dial(t).ask(t, rawGet()); codeOf(got) != c.want || len(r.upstream.Seen()) != 0 {
				t.Errorf("got %d %s, want %s; the upstream saw %q", got.Status, codeOf(got), c.want, texts(r.upstream.Seen()))
			}
		})
	}
}
