package answers

import (
	"bytes"
	"strconv"
	"strings"

	"petgate/gateway/http1"
)

// hasETag reports whether If-None-Match has this ETag, or "*". It compares weakly, as RFC 9110,
// section 13.1.2, demands.
func hasETag(q *http1.Request, etag string) bool {
	strong := strings.TrimPrefix(etag, "W/")
	for _, f := range q.Fields {
		if !http1.EqualFold(f.Name, "if-none-match") {
			continue
		}
		for one := range bytes.SplitSeq(f.Value, []byte{','}) {
			one = http1.Trim(one)
			if string(one) == "*" || string(bytes.TrimPrefix(one, []byte("W/"))) == strong {
				return true
			}
		}
	}
	return false
}

// weight returns the weight of a media type or a coding that a field lists by its name (RFC 9110,
// section 12.4.2). It is 0 without such a name. Wildcards do not count: they are in almost every
// request, and say little about what the client can use.
func weight(q *http1.Request, field, want string) (weight float64) {
	for _, f := range q.Fields {
		if !http1.EqualFold(f.Name, field) {
			continue
		}
		for one := range bytes.SplitSeq(f.Value, []byte{','}) {
			name, parameters, _ := bytes.Cut(one, []byte{';'})
			if !http1.EqualFold(http1.Trim(name), want) {
				continue
			}
			for parameter := range bytes.SplitSeq(parameters, []byte{';'}) {
				if name, value, _ := bytes.Cut(http1.Trim(parameter), []byte{'='}); http1.EqualFold(name, "q") {
					weight, _ = strconv.ParseFloat(string(value), 64)
					return weight
				}
			}
			return 1
		}
	}
	return 0
}
