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
	after  int64 // the page begins after this id
	limit  int64
	status Status // empty = any
}

const (
	limitDefault = 20
	limitMax     = 100
)

// parseQuery reads the parameters of a list. Unknown parameters are ignored, except names that are common for paging elsewhere. Known
// ones must not be repeated or empty.
func parseQuery(args *fasthttp.Args) (query, error) {
	q := query{limit: limitDefault, after: math.MinInt64}
	seen := map[string]bool{}
	for key, value := range args.All() {
		var err error
		name := string(key)
		switch name {
		case "limit":
			q.limit, err = parseInteger(string(value))
			if err != nil || q.limit < 1 || q.limit > limitMax {
				return q, invalidParameter(name, fmt.Sprintf("must be an integer from 1 to %d", limitMax))
			}
		case "after":
			if q.after, err = parseInteger(string(value)); err != nil {
				return q, invalidParameter(name, "must be the id of a pet: a 64-bit integer")
			}
		case "status":
			if q.status = Status(value); !q.status.isKnown() {
				return q, invalidParameter(name, "must be available, pending or sold")
			}
		case "offset", "page": // a client that pages with them would get the first page again and again
			return q, invalidParameter(name, "is not supported: follow Link, or send the last id as after")
		default:
			continue
		}
		if seen[name] {
			return q, invalidParameter(name, "must not be repeated")
		}
		seen[name] = true
	}
	return q, nil
}

// nextPage returns the query of the page after the given id: that of this page, with another id.
func nextPage(args *fasthttp.Args, after int64) string {
	args.Set("after", strconv.FormatInt(after, 10))
	return string(args.QueryString())
}

// parseInteger is strconv.ParseInt, but refuses a plus sign.
func parseInteger(text string) (int64, error) {
	if strings.HasPrefix(text, "+") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}
