package portal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// pair is a member of an object; object has the order in which people read it.
type (
	pair struct {
		name  string
		value any
	}
	object []pair
)

// exampleOf returns the example of a body: the document's own, or one that is made up from the
// schema. isRequest says which members belong to it. ok is false if there is none.
func exampleOf(media *openapi3.MediaType, isRequest bool) (value any, ok bool) {
	if media.Example != nil {
		return ordered(media.Example, media.Schema, depthMax), true
	}
	for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
		if one := media.Examples[name]; one != nil && one.Value != nil && one.Value.Value != nil {
			return ordered(one.Value.Value, media.Schema, depthMax), true
		}
	}
	if isEmpty(media.Schema) {
		return nil, false
	}
	made := sample{isRequest: isRequest, left: membersMax}
	return made.of(media.Schema, depthMax), true
}

// ordered returns a value of the document with the members of its objects in the order of their
// schemas.
func ordered(value any, ref *openapi3.SchemaRef, depth int) any {
	s := &openapi3.Schema{}
	if !isEmpty(ref) && depth > 0 {
		s = ref.Value
	}
	switch v := value.(type) {
	case map[string]any:
		names, properties, _ := propertiesOf(s, max(depth, 0))
		var o object
		for _, name := range append(names, slices.Sorted(maps.Keys(v))...) {
			if one, found := v[name]; found && !slices.ContainsFunc(o, func(p pair) bool { return p.name == name }) {
				o = append(o, pair{name, ordered(one, properties[name], depth-1)})
			}
		}
		return o
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = ordered(v[i], s.Items, depth-1)
		}
		return list
	}
	return value
}

// sample makes values up.
type sample struct {
	isRequest bool
	left      int // members that it may still make
}

// of makes up a value of a schema: one that the schema gives, or one of its parts, or one of its
// type.
func (m *sample) of(ref *openapi3.SchemaRef, depth int) any {
	if isEmpty(ref) || depth == 0 {
		return nil
	}
	s := ref.Value
	if given := given(s); given != nil {
		return ordered(given, ref, depth)
	}
	if one := alternative(s); one != nil {
		return m.of(one, depth-1)
	}
	names, properties, required := propertiesOf(s, depth)
	switch {
	case len(names) > 0:
		return m.object(names, properties, required, depth)
	case len(s.AllOf) > 0:
		return m.of(s.AllOf[0], depth-1)
	}
	return m.byType(s, depth)
}

// given returns the first value that a schema itself gives, or nil.
func given(s *openapi3.Schema) any {
	for _, one := range slices.Concat([]any{s.Example, s.Const, s.Default}, s.Examples, s.Enum) {
		if one != nil {
			return one
		}
	}
	return nil
}

// alternative returns the first schema of several of which a value has one, or nil.
func alternative(s *openapi3.Schema) *openapi3.SchemaRef {
	for _, one := range slices.Concat(s.OneOf, s.AnyOf) {
		if !isEmpty(one) && !one.Value.Type.Is("null") && len(s.Properties) == 0 {
			return one
		}
	}
	return nil
}

func (m *sample) byType(s *openapi3.Schema, depth int) any {
	types := s.Type.Slice()
	if len(types) == 0 {
		return nil
	}
	switch types[0] {
	case "array":
		if item := m.of(s.Items, depth-1); item != nil {
			return []any{item}
		}
		return []any{}
	case "object":
		if more := m.of(s.AdditionalProperties.Schema, depth-1); more != nil {
			return object{{"name", more}}
		}
		return object{}
	case "integer", "number":
		if s.Min != nil && *s.Min > 1 {
			return *s.Min
		}
		return 1
	case "boolean":
		return true
	case "string":
		return cmp.Or(formats[s.Format], "string")
	}
	return nil
}

// formats are examples of strings, by the format of the schema.
var formats = map[string]string{
	"date-time": "2026-01-01T00:00:00Z",
	"date":      "2026-01-01",
	"uuid":      "8e03978e-40d5-43e8-bc93-6894a57f9324",
	"email":     "a@example.com",
	"uri":       "https://example.com",
	"url":       "https://example.com",
}

// object has the members that a request needs, or all. Deep inside, it has the required ones only.
func (m *sample) object(names []string, properties openapi3.Schemas, required []string, depth int) any {
	needsOnly := m.isRequest && len(required) > 0 || depth < depthMax-1
	o := object{}
	for _, name := range names {
		p := properties[name]
		isOptional := !slices.Contains(required, name)
		if isEmpty(p) || m.left <= 0 || m.isElsewhere(p.Value) || needsOnly && isOptional {
			continue
		}
		m.left--
		o = append(o, pair{name, m.of(p, depth-1)})
	}
	return o
}

// isElsewhere reports whether only responses have the member and this is a request, or the other
// way round.
func (m *sample) isElsewhere(s *openapi3.Schema) bool {
	if m.isRequest {
		return s.ReadOnly
	}
	return s.WriteOnly
}

// literals are how a language writes true, false and null.
type literals [3]string

var (
	jsonLiterals   = literals{"true", "false", "null"}
	pythonLiterals = literals{"True", "False", "None"}
)

const lineMax = 50 // characters: what fits beside the text, without the indentation

// format writes a value with at most lineMax characters in a line where that is possible.
func (l literals) format(value any, indent string) string {
	var open, end string
	var parts []string
	switch v := value.(type) {
	case object:
		open, end = "{", "}"
		for _, p := range v {
			parts = append(parts, quote(p.name)+": "+l.format(p.value, indent+"  "))
		}
	case []any:
		open, end = "[", "]"
		for _, one := range v {
			parts = append(parts, l.format(one, indent+"  "))
		}
	case bool:
		if v {
			return l[0]
		}
		return l[1]
	case nil:
		return l[2]
	case string:
		return quote(v)
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return l[2]
		}
		return string(text)
	}
	if inline := strings.Join(parts, ", "); len(inline) < lineMax && !strings.Contains(inline, "\n") {
		return open + inline + end
	}
	next := "\n" + indent + "  "
	return open + next + strings.Join(parts, ","+next) + "\n" + indent + end
}

// quote writes a JSON string, with <, > and & as they are.
func quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}
