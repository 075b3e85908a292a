package answers

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"petgate/gateway/http1"
)

// anyOrigin lets the scripts of every origin read responses.
const anyOrigin = "*"

// CheckOrigin returns an error if an allowed origin is neither "*" nor written as browsers write
// the Origin field (RFC 6454, section 6.2): only then can it be compared byte for byte.
func CheckOrigin(origin string) error {
	if origin == anyOrigin {
		return nil
	}
	u, err := url.Parse(origin)
	isWeb := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	if !isWeb || u.Hostname() == "" || strings.Contains(u.Host, anyOrigin) {
		return fmt.Errorf("%q is not an origin: use https://host, https://host:port or *", origin)
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme + ":" + u.Port() { // browsers leave out the scheme's own port
	case "http:", "https:", "http:80", "https:443":
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	if written := u.Scheme + "://" + host; written != origin {
		return fmt.Errorf("%q is not as browsers send it: use %s", origin, written)
	}
	return nil
}

// exposed are the response fields that scripts of other origins may read, besides those that they
// may always read.
const exposed = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, " +
	"Retry-After, X-Request-Id, X-Request-Cost, X-Key-Expires, X-Stability, Deprecation, Sunset, Link, Location, " +
	"Allow, WWW-Authenticate, Idempotent-Replayed, Vary"

// CORS decides which origins' scripts may read responses (the CORS protocol of the Fetch standard).
// It never allows credentials: an API key is not sent by the browser but by the script, in
// Authorization.
type CORS struct {
	allowed   map[string][]http1.Field // by origin: the fields of responses to it; without "*"
	others    []http1.Field            // of responses to all other requests
	isAny     bool                     // every origin is allowed; others has its fields
	preflight *Answer                  // of an allowed origin
}

// NewCORS returns the rule for origins. methods are those of all operations.
func NewCORS(origins, methods []string) *CORS {
	c := &CORS{
		allowed: make(map[string][]http1.Field),
		isAny:   slices.Contains(origins, anyOrigin),
		preflight: &Answer{
			Outcome: outcomePreflight, Status: http.StatusNoContent,
			Fields: fieldsOf(
				"Access-Control-Allow-Methods", strings.Join(methods, ", "),
				"Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, X-Request-Id",
				"Access-Control-Max-Age", "600",
				"Vary", "Access-Control-Request-Method, Access-Control-Request-Headers",
			),
		},
	}
	readable := func(origin string) []http1.Field {
		return fieldsOf("Access-Control-Allow-Origin", origin, "Access-Control-Expose-Headers", exposed)
	}
	switch {
	case c.isAny:
		c.others = readable(anyOrigin)
	case len(origins) > 0:
		// Also if the request has no Origin: a cache must not use this response for a request that
		// has one.
		c.others = fieldsOf("Vary", "Origin")
		for _, origin := range origins {
			c.allowed[origin] = append(readable(origin), c.others...)
		}
	}
	return c
}

// Fields returns the fields with which scripts of an allowed origin can read the response to q,
// whatever it is.
func (c *CORS) Fields(q *http1.Request) []http1.Field {
	if len(c.allowed) > 0 {
		if fields, isAllowed := c.allowed[string(q.Field("origin"))]; isAllowed {
			return fields
		}
	}
	return c.others
}

// Preflight returns the answer to a preflight of an allowed origin, or nil. It is the same for
// every path: a script whose real request has a wrong path can read the 404.
func (c *CORS) Preflight(q *http1.Request) *Answer {
	if string(q.Method) != http.MethodOptions || len(q.Field("access-control-request-method")) == 0 {
		return nil
	}
	origin := q.Field("origin")
	if _, isAllowed := c.allowed[string(origin)]; isAllowed || c.isAny && len(origin) > 0 {
		return c.preflight
	}
	return nil
}
