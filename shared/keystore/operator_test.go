package keystore_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/keystore"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/sessions"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func TestOperators(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		spec := sessions.OperatorToken{Name: "terraform", Role: sessions.RoleKeys, ExpiresAt: c.millis().Add(time.Hour)}
		token, made, err := sessions.Of(s).CreateOperator(t.Context(), spec)
		must.Do(t, err)
		wantEqual(t, "the operator of the token",
			must.Get[sessions.OperatorToken](t)(sessions.Of(s).OperatorByToken(t.Context(), token)), made)
		refused(t, keystore.ErrExists, "terraform")(sessions.Of(s).CreateOperator(t.Context(), spec))
		refused(t, keystore.ErrInvalid, "the name of the operator: ")(
			sessions.Of(s).CreateOperator(t.Context(), sessions.OperatorToken{Name: " "}),
		)
		refused(t, keystore.ErrInvalid, "in the past")(
			sessions.Of(s).CreateOperator(t.Context(), sessions.OperatorToken{Name: "a", ExpiresAt: c.millis()}),
		)
		for _, wrong := range []string{"", token[1:], token + "x", strings.ToUpper(token)} {
			refused(t, keystore.ErrNotFound)(sessions.Of(s).OperatorByToken(t.Context(), wrong))
		}
		c.now = c.now.Add(time.Hour)
		refused(t, keystore.ErrNotFound)(sessions.Of(s).OperatorByToken(t.Context(), token))
		_, later, err := sessions.Of(s).CreateOperator(t.Context(), sessions.OperatorToken{Name: "ansible", Role: sessions.RoleRead})
		must.Do(t, err)
		spec.CreatedAt = c.millis().Add(-time.Hour)
		wantEqual(t, "those that are listed", must.Get[[]sessions.OperatorToken](t)(sessions.Of(s).Operators(t.Context())),
			[]sessions.OperatorToken{later, spec})
		must.Get[sessions.OperatorToken](t)(sessions.Of(s).RevokeOperator(t.Context(), "terraform"))
		refused(t, keystore.ErrNotFound, "terraform")(sessions.Of(s).RevokeOperator(t.Context(), "terraform"))
		wantNoSecret(t, s, token)
		for role, may := range map[sessions.Role]string{sessions.RoleRead: "read", sessions.RoleKeys: "read keys", sessions.RoleAdmin: "read keys admin", "": ""} {
			for _, needed := range sessions.Roles {
				wantEqual(t, string(role+" may "+needed), role.Allows(needed), strings.Contains(may, string(needed)))
			}
		}
	})
}

// atOnce sends a request many times at once. It checks that one is told that it has made a key, and
// all others that it was made before.
func atOnce(t *testing.T, send func() (token string, err error)) {
	t.Helper()
	var made atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			switch token, err := send(); {
			case err == nil && token != "":
				made.Add(1)
			case !errors.Is(err, keystore.ErrRepeated):
				t.Errorf("token %q, %v", token, err)
			}
		})
	}
	group.Wait()
	must.Equal(t, made.Load(), 1, "those who were told that they made a key")
}

// However often and however many at once send a request, it is carried out once, and all can make
// its token.
func TestRequestIsCarriedOutOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		tenant := newTenant(t, s, "acme")
		r := keystore.Request{ID: "id", Body: "body", Salt: "salt", Random: bytes.Repeat([]byte("\x01\x3c"), 256)}
		atOnce(t, func() (string, error) {
			_, token, _, err := s.Once(r).CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant.ID})
			return token, err
		})
		keys := must.Get[[]keystore.Key](t)(keystore.Collect(lists.Of(s).Keys(t.Context(), tenant.ID)))
		must.Equal(t, len(keys), 1, "keys that were made")
		found, event, err := s.Request(t.Context(), "id")
		must.Do(t, err)
		wantEqual(t, "the request", [2]string{found.Body, found.Salt}, [2]string{"body", "salt"})
		wantEqual(t, "its key", event.Key, keys[0].ID)
		token := must.Get[string](t)(r.Token(apikey.Live))
		wantEqual(t, "the key of its token", must.Get[keystore.Key](t)(s.KeyByToken(t.Context(), token)).ID, keys[0].ID)
		refused(t, keystore.ErrRepeated)(s.Once(r).ResetUsage(t.Context(), tenant.ID))
		refused(t, keystore.ErrNotFound)(s.Request(t.Context(), "another"))

		c.now = c.now.Add(24 * time.Hour)
		newKey(t, s.Once(keystore.Request{ID: "next", Random: bytes.Repeat([]byte{7}, 512)}),
			keystore.KeySpec{Tenant: tenant.ID})
		refused(t, keystore.ErrRepeated)(s.Once(r).ResetUsage(t.Context(), tenant.ID))
		c.now = c.now.Add(time.Millisecond) // then only the token tells that it was carried out
		newKey(t, s.Once(keystore.Request{ID: "last", Random: bytes.Repeat([]byte{9}, 512)}),
			keystore.KeySpec{Tenant: tenant.ID})
		refused(t, keystore.ErrNotFound)(s.Request(t.Context(), "id"))
	})
}

// Rotations of one key that are one request wait for one another. Only the first finds a key to
// rotate: all others are told to look for what it has made, not that the key was rotated or
// revoked.
func TestRotationIsCarriedOutOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *keystore.Store, c *clock) {
		tenant := newTenant(t, s, "acme")
		for round := range 10 {
			key := keyOf(t, s, tenant.ID, "key")
			r := keystore.Request{ID: fmt.Sprint(round), Random: bytes.Repeat([]byte{byte(round), 60}, 256)}
			atOnce(t, func() (string, error) {
				_, token, _, err := s.Once(r).RotateKey(t.Context(), key.ID,
					c.millis().Add(time.Duration(round%2)*time.Hour))
				return token, err
			})
		}
	})
}

// hooked is random, and calls a function first.
type hooked func()

func (f hooked) Read(p []byte) (int, error) {
	f()
	return rand.Read(p)
}

// If the answer to the commit of a request is lost, the request is not taken for a repeated one:
// its change is looked for like any other.
func TestRequestWhoseAnswerIsLost(t *testing.T) {
	u := must.Get[*url.URL](t)(url.Parse(testkit.Postgres(t)))
	direct := keystore.New(open(t, u.String()), nil, nil, "operator:anna")
	tenant := newTenant(t, direct, "acme")
	proxy := testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	n, lost := 1, 0
	s := keystore.New(open(t, u.String()), nil, hooked(func() { // the key's ID is drawn in the transaction
		proxy.CutAt(testkit.Cut{Trip: proxy.RoundTrips() + n, Delivered: true})
	}), "operator:anna")
	s.Seek(time.Second)
	for isCut := true; isCut; n++ {
		r := keystore.Request{ID: fmt.Sprint(n), Random: bytes.Repeat([]byte{byte(n), 60}, 256)}
		_, token, _, err := s.Once(r).CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant.ID})
		isCut = proxy.IsCut()
		proxy.CutAt(testkit.Cut{})
		_, noKey := direct.KeyByToken(t.Context(), must.Get[string](t)(r.Token(apikey.Live)))
		if (err == nil) != (noKey == nil) || (token != "") != (err == nil) || keystore.IsUnknown(err) {
			t.Errorf("cut at round trip %d: %v; its key: %v", n, err, noKey)
		}
		if isCut && noKey == nil {
			lost++
		}
	}
	must.Equal(t, lost, 1, "commits whose answers were lost")
}
