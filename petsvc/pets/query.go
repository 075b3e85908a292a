package pets

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

// query holds the parameters of a list.
type query struct {
	after    int64 // the page begins after this id
	limit    int64
	hasLimit bool
	status   Status // empty = any
}

const (
	limitDefault = 20
	limitMax     = 100
)

// parseQuery reads the parameters of a list. Unknown parameters are ignored, except names that are common for paging elsewhere. Known
// ones must not be repeated or empty.
func parseQuery(args *fasthttp.Args) (query, *fault) {
	q := query{limit: limitDefault, after: math.MinInt64}
	var seen [3]bool
	for name, value := range args.All() {
		var err error
		var is int
		switch string(name) {
		case "limit":
			is = 0
			q.limit, err = parseInteger(string(value))
			q.hasLimit = true
			if err != nil || q.limit < 1 || q.limit > limitMax {
				return q, &fault{"parameter", "limit", fmt.Sprintf("must be an integer from 1 to %d", limitMax)}
			}
		case "after":
			is = 1
			if q.after, err = parseInteger(string(value)); err != nil {
				return q, &fault{"parameter", "after", "must be the id of a pet: a 64-bit integer"}
			}
		case "status":
			is = 2
			if q.status = Status(value); !q.status.isKnown() {
				return q, &fault{"parameter", "status", "must be available, pending or sold"}
			}
		case "offset", "page": // a client that pages with them would get the first page again and again
			return q, &fault{"parameter", string(name), "is not supported: follow Link, or send the last id as after"}
		default:
			continue
		}
		if seen[is] {
			return q, &fault{"parameter", string(name), "must not be repeated"}
		}
		seen[is] = true
	}
	return q, nil
}

// next returns the request target of the page after the given id.
func (q query) next(after int64) string {
	target := make([]byte, 0, 64)
	target = append(target, listPath+"?"...)
	if q.hasLimit {
		target = append(strconv.AppendInt(append(target, "limit="...), q.limit, 10), '&')
	}
	if q.status != "" {
		target = append(append(append(target, "status="...), q.status...), '&')
	}
	return string(strconv.AppendInt(append(target, "after="...), after, 10))
}

// parseInteger is strconv.ParseInt, but refuses a plus sign.
func parseInteger(text string) (int64, error) {
	if !isInteger(text) {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}

func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return digits != ""
}
