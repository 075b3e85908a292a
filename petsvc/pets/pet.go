package pets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"petgate/shared/api"
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

// NewPet is a pet as a client sends it.
type NewPet struct {
	Name       string
	CategoryID int64
	Status     Status
}

// Pet is a pet as stored.
type Pet struct {
	ID int64
	NewPet
}

// AppendJSON appends p as a JSON object.
func (p Pet) AppendJSON(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"id":`...), p.ID, 10)
	dst = api.AppendString(append(dst, `,"name":`...), p.Name)
	dst = strconv.AppendInt(append(dst, `,"categoryId":`...), p.CategoryID, 10)
	dst = api.AppendString(append(dst, `,"status":`...), string(p.Status))
	return append(dst, '}')
}

const (
	nameMax    = 200      // characters
	petMax     = 64 << 10 // bytes of a body; a name that is written in escapes takes 2,400
	membersMax = 64       // of a body; those that a pet does not have are ignored
)

// fault says why a body or a parameter is invalid.
type fault struct {
	kind string // member or parameter; empty = the body as a whole
	name string
	text string // the rest of a sentence that begins with the name
}

func (f *fault) message() string {
	if f.kind == "" {
		return "the body " + f.text
	}
	return fmt.Sprintf("the %s %q %s", f.kind, f.name, f.text)
}

// AppendJSON appends f as a JSON object, for programs.
func (f *fault) AppendJSON(dst []byte) []byte {
	dst = api.AppendString(append(dst, '{'), f.kind)
	dst = api.AppendString(append(dst, ':'), f.name)
	return append(dst, '}')
}

// decode reads a NewPet. It is stricter than encoding/json with a struct: names match exactly, no member is repeated, and
// text that is not Unicode is refused instead of repaired, because a name is stored as it was sent.
func decode(body []byte) (NewPet, *fault) {
	p := NewPet{Status: Available}
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return p, &fault{text: "is empty: send one JSON object"}
	}
	var whole json.RawMessage
	if err := json.Unmarshal(body, &whole); err != nil {
		text := "must be one JSON object"
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			text += fmt.Sprintf(": the JSON is malformed at byte %d", syntax.Offset)
		}
		return p, &fault{text: text}
	}
	if body[len(body)-len(bytes.TrimLeft(body, " \t\r\n"))] != '{' {
		return p, &fault{text: "must be a JSON object"}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	_, _ = d.Token() // the opening brace; the body is valid JSON, so nothing can fail from here on
	seen := make(map[string]bool, 4)
	for d.More() {
		from := d.InputOffset()
		token, _ := d.Token()
		name, _ := token.(string)
		if !isUnicode(body[from:d.InputOffset()]) {
			return p, &fault{text: "has a member whose name is not Unicode text"}
		}
		var value json.RawMessage
		_ = d.Decode(&value)
		switch {
		case seen[name]:
			return p, &fault{"member", name, "must not be repeated"}
		case !isUnicode(value):
			return p, &fault{"member", name, "must be valid UTF-8 without unpaired surrogates"}
		}
		if seen[name] = true; len(seen) > membersMax {
			return p, &fault{text: fmt.Sprintf("must have at most %d members", membersMax)}
		}
		if f := p.set(name, value); f != nil {
			return p, f
		}
	}
	for _, name := range []string{"name", "categoryId"} {
		if !seen[name] {
			return p, &fault{"member", name, "is missing"}
		}
	}
	return p, nil
}

// set sets one member from its JSON value.
func (p *NewPet) set(name string, value []byte) *fault {
	switch name {
	case "id":
		return &fault{"member", name, "must not be sent: the service assigns it"}
	case "name":
		if value[0] != '"' {
			return &fault{"member", name, "must be a string"}
		}
		_ = json.Unmarshal(value, &p.Name)
		if !isName(p.Name) {
			return &fault{
				"member", name,
				fmt.Sprintf("must have 1 to %d characters, no control characters, and at least one that is not a space", nameMax),
			}
		}
	case "categoryId":
		// Not 1.0 or 1e2: some JSON readers do not read such numbers exactly.
		if json.Unmarshal(value, &p.CategoryID) != nil || value[0] == 'n' {
			return &fault{"member", name, "must be a 64-bit integer without fraction and exponent"}
		}
	case "status":
		if value[0] == '"' {
			_ = json.Unmarshal(value, &p.Status)
		} else {
			p.Status = ""
		}
		if !p.Status.isKnown() {
			return &fault{"member", name, `must be "available", "pending" or "sold"`}
		}
	}
	return nil
}

// byteOrderMark is white space in the patterns of JSON Schema, though not in Unicode.
const byteOrderMark = '\uFEFF'

func isName(name string) bool {
	visible, count := false, 0
	for _, r := range name {
		if unicode.IsControl(r) {
			return false
		}
		visible = visible || !unicode.IsSpace(r) && r != byteOrderMark
		count++
	}
	return visible && count <= nameMax
}

// isUnicode reports whether JSON text is valid UTF-8 and has no escapes of unpaired surrogates. encoding/json would replace
// both by U+FFFD.
func isUnicode(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++ // the escaped character
		if text[i] != 'u' {
			continue
		}
		r := escaped(text[i+1:])
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 >= len(text) || text[i+1] != '\\' || text[i+2] != 'u' ||
			utf16.DecodeRune(r, escaped(text[i+3:])) == unicode.ReplacementChar {
			return false
		}
		i += 6
	}
	return true
}

// escaped reads the four hexadecimal digits of a \u escape.
func escaped(digits []byte) rune {
	r, err := strconv.ParseUint(string(digits[:4]), 16, 16)
	if err != nil {
		panic("bug: JSON text with a broken escape")
	}
	return rune(r)
}
