package edge

import (
	"petgate/gateway/claims"
	"petgate/shared/core/apikey"
)

// identify finds the token and checks its form and checksum (RFC 6750, section 2.1). Mistyped and
// invented tokens are refused here, without a lookup, and are not counted as failed attempts. If
// the operation is public, a token is not read.
func (e *Edge) identify(x *exchange) refusal {
	if x.isPublic {
		return refusal{}
	}
	token := x.claims.Token()
	if len(token) == 0 {
		return refusal{reason: missingKey, message: x.claims.Misplaced(&x.Request)}
	}
	env, err := apikey.Parse(token)
	if err != nil {
		return refusal{reason: malformedKey, message: claims.Malformation(token, err, e.keysBegin())}
	}
	// Not in authenticate, whose frame is large: SHA-256 needs much stack, and an idle connection
	// keeps the stack of its deepest call.
	x.token, x.env, x.hash = token, env, apikey.Sum(token)
	return refusal{}
}

// keysBegin returns what the tokens of new keys begin with.
func (e *Edge) keysBegin() string { return apikey.Beginning(e.cfg.KeyPrefix, e.cfg.Environment) }
