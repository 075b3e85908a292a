package edge

import (
	"bytes"

	"petgate/gateway/http1"
	"petgate/shared/core/apikey"
)

// identify finds the token and checks its form and checksum (RFC 6750, section 2.1). Mistyped and invented tokens are refused
// here, without a lookup, and are not counted as failed attempts.
func (e *Edge) identify(x *exchange) refusal {
	scheme, token, _ := bytes.Cut(x.authorization, []byte{' '})
	if !http1.EqualFold(scheme, "bearer") || len(token) == 0 {
		return refusal{reason: missingKey}
	}
	env, err := apikey.Parse(token)
	if err != nil {
		return refusal{reason: malformedKey, message: err.Error()}
	}
	x.token, x.env = token, env
	return refusal{}
}
