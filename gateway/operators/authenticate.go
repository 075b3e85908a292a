package operators

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"

	"petgate/gateway/quotas/authfailures"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
)

var bearerForm = regexp.MustCompile(`^(?i:bearer) +(pto_[0-9A-Za-z]{38})$`)

// bearer returns the token of a request; empty: it has none, or more than one, or another kind of
// token.
func bearer(r *http.Request) string {
	fields := r.Header.Values("Authorization")
	if len(fields) != 1 {
		return ""
	}
	if match := bearerForm.FindStringSubmatch(fields[0]); match != nil {
		return match[1]
	}
	return ""
}

// authenticate finds the operator of a request. A token that was valid before is looked up even if
// its address has tried too many.
func (a *API) authenticate(
	v *visit, w http.ResponseWriter, r *http.Request, store *keystore.Store,
) (o sessions.OperatorToken, err error) {
	unknown := failure{
		status: http.StatusUnauthorized, code: "invalid_token",
		message: "this call needs the header Authorization: Bearer with the token of an operator, " +
			"which `keyadmin operator create` prints",
	}
	if v.token == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="petgate operators"`)
		return o, unknown
	}
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address is one more client
	sum := sha256.Sum256([]byte(v.token))
	if _, isKnown := a.known.Load(sum); !isKnown {
		if s := a.failures.Known(peer.Addr()); s.Limit > 0 && s.Remaining == 0 {
			return o, a.tooMany(w, s)
		}
	}
	ctx, cancel := context.WithTimeout(v.ctx, databaseWithin)
	defer cancel()
	if err = store.Reopen(); err == nil {
		o, err = sessions.Of(store).OperatorByToken(ctx, v.token)
	}
	switch {
	case err == nil:
		a.known.Store(sum, true)
	case errors.Is(err, keystore.ErrNotFound):
		a.known.Delete(sum)
		if s, isAllowed := a.failures.Fail(peer.Addr()); !isAllowed {
			return o, a.tooMany(w, s)
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="petgate operators", error="invalid_token"`)
		unknown.message = "no operator has this token: it was revoked, has expired, or is of another installation"
		err = unknown
	}
	return o, err
}

func (a *API) tooMany(w http.ResponseWriter, s authfailures.State) error {
	w.Header().Set("Retry-After", strconv.FormatInt(max(1, (s.ReleaseAt-instant.Of(a.cfg.Clock())).Seconds()), 10))
	return failure{
		status: http.StatusTooManyRequests, code: "too_many_failed_attempts",
		message: "this address has tried too many unknown tokens: wait for as long as Retry-After says",
	}
}
