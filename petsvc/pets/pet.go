package pets

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"
)

// Status says whether a pet can be adopted.
type Status string

// The statuses.
const (
	Available Status = "available"
	Pending   Status = "pending"
	Sold      Status = "sold"
)

func (s Status) isKnown() bool { return s == Available || s == Pending || s == Sold }

// NewPet is a pet without an id: the service assigns it.
type NewPet struct {
	Name       string `json:"name"`
	CategoryID int64  `json:"categoryId" db:"category_id"`
	Status     Status `json:"status"`
}

// Pet is a pet as stored.
type Pet struct {
	ID int64 `json:"id"`
	NewPet
}

// encode returns a pet or several as JSON. Bytes of another program's pets that are not UTF-8
// become U+FFFD.
func encode(value any) []byte {
	text, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic("bug: " + err.Error())
	}
	return text
}

const nameMax = 200 // characters

// rules say what the members of a new pet must be.
var rules = map[string]string{
	"id": "must not be sent: the service assigns it",
	"name": fmt.Sprintf("must be a string of 1 to %d characters, without control characters, "+
		"and with at least one character that is not a space", nameMax),
	// Some JSON readers do not read 1.0 or 1e2 exactly.
	"categoryId": "must be a 64-bit integer without fraction and exponent",
	"status":     `must be "available", "pending" or "sold"`,
}

// decode reads a NewPet. The names of members match exactly, none is repeated, and text that is not
// Unicode is refused instead of repaired, because a name is stored as it was sent. Members that a
// pet does not have are ignored.
func decode(body []byte) (NewPet, error) {
	type sent struct { // a nil is missing or null
		ID         jsontext.Value `json:"id"`
		Name       *string        `json:"name"`
		CategoryID *int64         `json:"categoryId"`
		Status     Status         `json:"status"`
	}
	p := &sent{Status: Available}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return NewPet{}, invalidBody("is empty: send one JSON object")
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return NewPet{}, undecodable(err)
	}
	switch {
	case p == nil:
		return NewPet{}, invalidBody("must be a JSON object")
	case p.ID != nil:
		return NewPet{}, invalidMember("id", rules["id"])
	case p.Name == nil:
		return NewPet{}, invalidMember("name", "is missing or null")
	case !isName(*p.Name):
		return NewPet{}, invalidMember("name", rules["name"])
	case p.CategoryID == nil:
		return NewPet{}, invalidMember("categoryId", "is missing or null")
	case !p.Status.isKnown():
		return NewPet{}, invalidMember("status", rules["status"])
	}
	return NewPet{Name: *p.Name, CategoryID: *p.CategoryID, Status: p.Status}, nil
}

// undecodable says why the JSON package refuses a body, and which member is the cause.
func undecodable(err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		for member := range semantic.JSONPointer.Tokens() {
			return invalidMember(member, rules[member])
		}
		return invalidBody("must be a JSON object")
	}
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return invalidBody("must be one JSON object")
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return invalidMember(syntax.JSONPointer.LastToken(), "must not be repeated")
	}
	what := fmt.Sprintf("is malformed at byte %d of the body: %v", syntax.ByteOffset+1, syntax.Err)
	if path := slices.Collect(syntax.JSONPointer.Tokens()); len(path) > 0 && utf8.ValidString(path[0]) {
		return invalidMember(path[0], what)
	}
	return invalidBody("must be one JSON object: the JSON " + what)
}

// isName reports whether a pet can have a name. JSON Schema counts a byte order mark as white
// space, Unicode does not.
func isName(name string) bool {
	visible := func(r rune) bool { return !unicode.IsSpace(r) && r != '\uFEFF' }
	return strings.ContainsFunc(name, visible) && !strings.ContainsFunc(name, unicode.IsControl) &&
		utf8.RuneCountInString(name) <= nameMax
}

// query holds the parameters of a list.
type query struct {
	after  int64 // the page begins after this id
	limit  int64
	status Status // empty = any
}

const limitDefault, limitMax = 20, 100

// parseQuery reads the parameters of a list. Unknown parameters are ignored, except names that are
// common for paging elsewhere. Known ones must not be repeated or empty.
func parseQuery(args *fasthttp.Args) (query, error) {
	q := query{limit: limitDefault, after: math.MinInt64}
	for key, value := range args.All() {
		var err error
		name, isGood, rule := string(key), false, ""
		switch name {
		case "limit":
			q.limit, err = parseInteger(string(value))
			isGood = err == nil && q.limit >= 1 && q.limit <= limitMax
			rule = fmt.Sprintf("must be an integer from 1 to %d", limitMax)
		case "after":
			q.after, err = parseInteger(string(value))
			isGood, rule = err == nil, "must be the id of a pet: a 64-bit integer"
		case "status":
			q.status = Status(value)
			isGood, rule = q.status.isKnown(), "must be available, pending or sold"
		case "offset", "page": // a client that pages with them would get the first page again and again
			rule = "is not supported: follow Link, or send the last id as after"
		default:
			continue
		}
		if isGood && len(args.PeekMulti(name)) > 1 {
			isGood, rule = false, "must not be repeated"
		}
		if !isGood {
			return q, invalidParameter(name, rule)
		}
	}
	return q, nil
}

// parseInteger is strconv.ParseInt, but refuses a plus sign.
func parseInteger(text string) (int64, error) {
	if strings.HasPrefix(text, "+") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}
