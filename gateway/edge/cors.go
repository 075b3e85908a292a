package edge

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"petgate/gateway/http1"
)

// anyOrigin lets the scripts of every origin read responses.
const anyOrigin = "*"

// CheckOrigin returns an error if an allowed origin is neither "*" nor written as browsers write the Origin field (RFC 6454,
// section 6.2): only then can it be compared byte for byte.
func CheckOrigin(origin string) error {
	if origin == anyOrigin {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Contains(u.Host, anyOrigin) {
		return fmt.Errorf("%q is not an origin: use https://host, https://host:port or *", origin)
	}
	host := strings.ToLower(u.Host)
	if port := u.Port(); port == "" || u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		host = strings.TrimSuffix(host, ":"+port)
	}
	if written := u.Scheme + "://" + host; written != origin {
		return fmt.Errorf("%q is not as browsers send it: use %s", origin, written)
	}
	return nil
}

// exposed are the response fields that scripts of other origins may read, besides those that they may always read.
const exposed = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit-Policy, RateLimit, Retry-After, X-Request-Id, " +
	"X-Key-Expires, X-Stability, Deprecation, Sunset, Link, Location, Allow, WWW-Authenticate, " +
	"Idempotent-Replayed, Vary"

// cors decides which origins' scripts may read responses (the CORS protocol of the Fetch standard). It never allows
// credentials: an API key is not sent by the browser but by the script, in Authorization.
type cors struct {
	origins []string
	isAny   bool  // origins has "*"
	answer  *page // to a preflight of an allowed origin
}

// The upstream decides nothing about origins: its fields with this prefix are not copied, because two answers would
// contradict each other.
const corsPrefix = "access-control-"

var (
	nameVary    = []byte("Vary")
	nameOrigin  = []byte("Access-Control-Allow-Origin")
	nameExposed = []byte("Access-Control-Expose-Headers")
)

// newCORS returns the rule for origins. methods are those of all operations.
func newCORS(origins, methods []string) cors {
	return cors{origins: origins, isAny: slices.Contains(origins, anyOrigin), answer: &page{
		outcome: outcomePreflight, status: http.StatusNoContent,
		fields: fieldsOf(
			"Access-Control-Allow-Methods", strings.Join(methods, ", "),
			"Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, X-Request-Id",
			"Access-Control-Max-Age", "600",
			"Vary", "Access-Control-Request-Method, Access-Control-Request-Headers",
		),
	}}
}

func (c *cors) isOn() bool { return len(c.origins) > 0 }

// preflight returns the answer to a preflight of an allowed origin. It is the same for every path: a script whose real request
// has a wrong path can read the 404.
func (c *cors) preflight(q *http1.Request) *page {
	if !c.isOn() || len(c.allowed(q)) == 0 || len(fieldOf(q, "access-control-request-method")) == 0 {
		return nil
	}
	return c.answer
}

// allowed returns the origin of a request if it is allowed, or else nil.
func (c *cors) allowed(q *http1.Request) []byte {
	origin := fieldOf(q, "origin")
	if c.isAny {
		return origin
	}
	for _, one := range c.origins {
		if string(origin) == one {
			return origin
		}
	}
	return nil
}

// write lets scripts of an allowed origin read the response, whatever it is.
func (c *cors) write(q *http1.Request, h *fasthttp.ResponseHeader) {
	switch {
	case !c.isOn():
		return
	case c.isAny:
		h.SetBytesK(nameOrigin, anyOrigin)
	default:
		h.AddBytesK(nameVary, "Origin") // also if the request has no Origin: a cache must not use this response for a request that has one
		origin := c.allowed(q)
		if len(origin) == 0 {
			return
		}
		h.SetBytesKV(nameOrigin, origin)
	}
	h.SetBytesK(nameExposed, exposed)
}

// fieldOf returns the value of a request's field. It is nil if the field is absent or not the only one of its name.
func fieldOf(q *http1.Request, name string) (value []byte) {
	for _, f := range q.Fields {
		if http1.EqualFold(f.Name, name) {
			if value != nil {
				return nil
			}
			value = f.Value
		}
	}
	return value
}
