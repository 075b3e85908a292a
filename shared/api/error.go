package api

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"petgate/shared/core/instant"
)

// Error is the body of every error answer.
type Error struct {
	Code    string  // for programs; one of the document's
	Message string  // for people
	Status  int     // the HTTP status
	Details Details // nil = none
}

func (e *Error) Error() string { return e.Message }

// Details is the optional part of an Error that programs can use; its JSON is an object.
type Details interface {
	AppendJSON(dst []byte) []byte
}

// Named are details that name what is wrong, such as {"parameter":"limit"}.
type Named struct{ Kind, Name string }

// AppendJSON appends n as a JSON object.
func (n Named) AppendJSON(dst []byte) []byte {
	dst = AppendString(append(dst, '{'), n.Kind)
	return append(AppendString(append(dst, ':'), n.Name), '}')
}

// Limited are the details of a 429. Members that are zero are left out.
type Limited struct {
	Policy          string // minute, day, ban, or another name of what refuses the request
	Plan            string
	Limit           int64
	Used            int64          // left out if there is no limit; a zero is not left out
	ResetAt         instant.Millis // rounded up to seconds
	RetryAfter      int64          // seconds
	CountsStrikes   bool           // strikesUntilBan is written, even if it is 0
	StrikesUntilBan int            // how many more refusals, at most, ban the key; 0: it is banned
	Ban             Ban
}

// Ban is a ban as clients see it. The zero value is none.
type Ban struct {
	EndsAt      instant.Millis // rounded up to seconds
	IsAutomatic bool           // imposed because the key did not wait, not by the operator
	Notice      string         // the operator's words for the client; may be empty
}

// AppendJSON appends b as a JSON object.
func (b Ban) AppendJSON(dst []byte) []byte {
	kind := "manual"
	if b.IsAutomatic {
		kind = "automatic"
	}
	dst = append(append(append(dst, `{"kind":"`...), kind...), `","endsAt":"`...)
	dst = append(appendSeconds(dst, b.EndsAt), '"')
	if b.Notice != "" {
		dst = AppendString(append(dst, `,"notice":`...), b.Notice)
	}
	return append(dst, '}')
}

// appendSeconds appends an instant, rounded up to seconds.
func appendSeconds(dst []byte, at instant.Millis) []byte {
	return (at + 999).Time().AppendFormat(dst, "2006-01-02T15:04:05Z")
}

// AppendJSON appends l as a JSON object.
func (l Limited) AppendJSON(dst []byte) []byte {
	from := len(dst)
	if l.Policy != "" {
		dst = AppendString(append(dst, `,"policy":`...), l.Policy)
	}
	if l.Plan != "" {
		dst = AppendString(append(dst, `,"plan":`...), l.Plan)
	}
	if l.Limit != 0 {
		dst = strconv.AppendInt(append(dst, `,"limit":`...), l.Limit, 10)
		dst = strconv.AppendInt(append(dst, `,"used":`...), l.Used, 10)
	}
	if l.ResetAt != 0 {
		dst = append(appendSeconds(append(dst, `,"resetAt":"`...), l.ResetAt), '"')
	}
	if l.RetryAfter != 0 {
		dst = strconv.AppendInt(append(dst, `,"retryAfter":`...), l.RetryAfter, 10)
	}
	if l.CountsStrikes {
		dst = strconv.AppendInt(append(dst, `,"strikesUntilBan":`...), int64(l.StrikesUntilBan), 10)
	}
	if l.Ban.EndsAt != 0 {
		dst = l.Ban.AppendJSON(append(dst, `,"ban":`...))
	}
	if len(dst) == from {
		dst = append(dst, ' ')
	}
	dst[from] = '{' // instead of the first comma
	return append(dst, '}')
}

// AppendJSON appends e as a JSON object. It allocates only if dst has too little room.
func (e Error) AppendJSON(dst []byte) []byte {
	dst = AppendString(append(dst, `{"code":`...), e.Code)
	dst = AppendString(append(dst, `,"message":`...), e.Message)
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(e.Status), 10)
	if e.Details != nil {
		dst = e.Details.AppendJSON(append(dst, `,"details":`...))
	}
	return append(dst, '}')
}

// AppendString appends s as a JSON string (RFC 8259, section 7). Bytes that are not UTF-8 become
// U+FFFD.
func AppendString[S string | []byte](dst []byte, s S) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error says that s has such bytes
	return dst
}
