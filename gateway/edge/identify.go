package edge

import (
	"bytes"
	"errors"

	"petgate/gateway/http1"
	"petgate/shared/core/apikey"
)

// identify finds the token and checks its form and checksum (RFC 6750, section 2.1). Mistyped and invented tokens are refused
// here, without a lookup, and are not counted as failed attempts.
func (e *Edge) identify(x *exchange) refusal {
	scheme, token, _ := bytes.Cut(x.claims.of(authorization), []byte{' '})
	if !http1.EqualFold(scheme, "bearer") || len(token) == 0 {
		return refusal{reason: missingKey, message: x.misplacedKey()}
	}
	env, err := apikey.Parse(token)
	if err != nil {
		return refusal{reason: malformedKey, message: e.malformation(token, err)}
	}
	// Not in authenticate, whose frame is large: SHA-256 needs much stack, and an idle connection keeps the stack of its deepest call.
	x.token, x.env, x.hash = token, env, apikey.Sum(token)
	return refusal{}
}

// keysBegin returns what the tokens of new keys begin with.
func (e *Edge) keysBegin() string { return apikey.Beginning(e.cfg.KeyPrefix, e.cfg.Environment) }

// malformation says why a token is not a key. The text has nothing of the token but its length.
func (e *Edge) malformation(token []byte, err error) string {
	switch {
	case token[0] == '"' || token[0] == '\'':
		return "the API key is in quotes: send it without them"
	case bytes.ContainsAny(token, " \t"):
		return "the API key contains a space, or follows more than one"
	case errors.Is(err, apikey.ErrPrefix):
		return "a key begins with " + e.keysBegin()
	}
	return err.Error()
}

// misplacedKey says where else the request seems to have a key, for clients of other APIs. It is empty if there is none. The text has
// nothing of the request.
func (x *exchange) misplacedKey() string {
	const instead = ": send it as Authorization: Bearer <API_KEY>"
	switch {
	case len(x.claims.of(authorization)) > 0:
		return "Authorization has no Bearer token" + instead
	case x.Request.Field("x-api-key") != nil:
		return "the API key is not read from X-API-Key" + instead
	case bytes.Contains(x.Request.Target, []byte("api_key=")) || bytes.Contains(x.Request.Target, []byte("access_token=")):
		return "the API key is not read from the query" + instead + ", and replace this key, because others log URLs"
	}
	return ""
}
