package portal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// A document may have schemas that contain themselves, and examples of any size. These are the
// bounds of what is shown.
const (
	depthMax   = 6   // of members of members, and of a value that is made up
	membersMax = 200 // of one object
)

// kind is a type in words.
type kind []word

// word is a part of a kind. Schema is the name of the schema that it refers to, or empty.
type word struct{ Text, Schema string }

func (k kind) String() string {
	var b strings.Builder
	for _, w := range k {
		b.WriteString(w.Text)
	}
	return b.String()
}

// member is a parameter of an operation, or a member of an object.
type member struct {
	Name, Description string
	Type              kind
	IsRequired        bool
	Options           []string // if only these values are possible
	Rules             string   // such as "1 to 100"; empty: none
}

type schema struct {
	Name, ID, Description string
	Type                  kind
	Members               []member
	Options               []string
}

const schemaPath = "#/components/schemas/"

// nameOf returns the name of the schema that ref refers to, or "" if it stands here. A reference to
// a part of a schema has none.
func nameOf(ref *openapi3.SchemaRef) string {
	if name, found := strings.CutPrefix(ref.Ref, schemaPath); found && !strings.Contains(name, "/") {
		return name
	}
	return ""
}

// isEmpty reports whether a schema is absent or allows everything without a word.
func isEmpty(ref *openapi3.SchemaRef) bool { return ref == nil || ref.Value == nil }

// kindOf returns the type of a schema. depth is how often it may still look into a schema.
func kindOf(ref *openapi3.SchemaRef, depth int) kind {
	if isEmpty(ref) || depth == 0 {
		return kind{{Text: "any"}}
	}
	s := ref.Value
	if name := nameOf(ref); name != "" {
		return kind{{name, name}}
	}
	switch {
	case len(s.AllOf) == 1 && len(s.Properties) == 0: // a reference with a description of its own
		return kindOf(s.AllOf[0], depth-1)
	case len(s.OneOf)+len(s.AnyOf) > 0:
		var all kind
		for _, one := range slices.Concat(s.OneOf, s.AnyOf) {
			if k := kindOf(one, depth-1); !strings.Contains(" or "+all.String()+" or ", " or "+k.String()+" or ") {
				if len(all) > 0 {
					all = append(all, word{Text: " or "})
				}
				all = append(all, k...)
			}
		}
		return all
	case s.Type.Is("array"):
		return append(kind{{Text: "array of "}}, kindOf(s.Items, depth-1)...)
	case s.Format == "date-time":
		return kind{{Text: "date and time"}}
	case isObject(s):
		if more := s.AdditionalProperties.Schema; !isEmpty(more) && len(s.Properties) == 0 {
			return append(kind{{Text: "map of "}}, kindOf(more, depth-1)...)
		}
		return kind{{Text: "object"}}
	}
	return kind{{Text: cmp.Or(strings.Join(s.Type.Slice(), " or "), "any")}}
}

func isObject(s *openapi3.Schema) bool {
	return s.Type.Is("object") || s.Type == nil && (len(s.Properties) > 0 || len(s.AllOf) > 0)
}

func newSchema(name string, s *openapi3.Schema) schema {
	one := schema{
		Name:        name,
		Description: s.Description,
		Type:        kindOf(&openapi3.SchemaRef{Value: s}, depthMax),
		Options:     optionsOf(s),
	}
	one.Members = appendMembers(nil, "", s, depthMax)
	return one
}

// appendMembers appends the members of an object, also those of the schemas that it consists of.
// Members of objects that have no name follow with their path, as in address.street and
// items[].price.
func appendMembers(to []member, path string, s *openapi3.Schema, depth int) []member {
	names, properties, required := propertiesOf(s, depth)
	for _, name := range names {
		ref := properties[name]
		if len(to) >= membersMax {
			break
		}
		m := member{Name: path + name, Type: kindOf(ref, depthMax), IsRequired: slices.Contains(required, name)}
		if isEmpty(ref) {
			to = append(to, m)
			continue
		}
		m.Description, m.Rules, m.Options = ref.Value.Description, rulesOf(ref.Value), optionsOf(ref.Value)
		to = append(to, m)
		inner, below := ref, m.Name+"."
		for !isEmpty(inner) && nameOf(inner) == "" && inner.Value.Type.Is("array") && len(below) < 200 {
			inner, below = inner.Value.Items, strings.TrimSuffix(below, ".")+"[]."
		}
		if isEmpty(inner) || nameOf(inner) != "" || depth <= 1 {
			continue
		}
		if all := inner.Value.AllOf; len(all) != 1 || nameOf(all[0]) == "" {
			to = appendMembers(to, below, inner.Value, depth-1)
		}
	}
	return to
}

// propertiesOf returns the properties of an object and of the schemas that it consists of, with
// their names in the order of the document's lists of required ones, then by name.
func propertiesOf(s *openapi3.Schema, depth int) (names []string, properties openapi3.Schemas, required []string) {
	properties = maps.Clone(s.Properties)
	required = slices.Clone(s.Required)
	for _, part := range s.AllOf {
		if isEmpty(part) || depth == 0 {
			continue
		}
		_, more, needed := propertiesOf(part.Value, depth-1)
		if properties == nil {
			properties = openapi3.Schemas{}
		}
		maps.Copy(properties, more)
		required = append(required, needed...)
	}
	place := func(name string) int {
		if i := slices.Index(required, name); i >= 0 {
			return i
		}
		return len(required)
	}
	names = slices.SortedFunc(maps.Keys(properties),
		func(a, b string) int { return cmp.Or(place(a)-place(b), cmp.Compare(a, b)) })
	return names, properties, required
}

func optionsOf(s *openapi3.Schema) (options []string) {
	for _, value := range s.Enum {
		options = append(options, fmt.Sprint(value))
	}
	if s.Const != nil {
		options = append(options, fmt.Sprint(s.Const))
	}
	return options
}

// rulesOf returns the rules of a schema that matter to people.
func rulesOf(s *openapi3.Schema) string {
	var rules []string
	switch {
	case s.Min != nil && s.Max != nil:
		rules = append(rules, fmt.Sprintf("%v to %v", *s.Min, *s.Max))
	case s.Min != nil && *s.Min > 0:
		rules = append(rules, fmt.Sprintf("at least %v", *s.Min))
	case s.Max != nil:
		rules = append(rules, fmt.Sprintf("at most %v", *s.Max))
	}
	if s.MaxLength != nil {
		rules = append(rules, fmt.Sprintf("%d to %d characters", s.MinLength, *s.MaxLength))
	}
	if s.Format == "int64" {
		rules = append(rules, "64 bits")
	}
	if s.Nullable {
		rules = append(rules, "may be null")
	}
	if s.Default != nil {
		rules = append(rules, fmt.Sprintf("default %v", s.Default))
	}
	return strings.Join(rules, "; ")
}

// references returns the names of the schemas that some schemas refer to, and of those that these
// refer to.
func references(roots []*openapi3.SchemaRef) map[string]bool {
	found, seen := map[string]bool{}, map[*openapi3.Schema]bool{}
	var visit func(*openapi3.SchemaRef)
	visit = func(ref *openapi3.SchemaRef) {
		if isEmpty(ref) {
			return
		}
		if name := nameOf(ref); name != "" {
			found[name] = true
		}
		if seen[ref.Value] { // by another name, too
			return
		}
		seen[ref.Value] = true
		s := ref.Value
		inside := []*openapi3.SchemaRef{s.Items, s.AdditionalProperties.Schema}
		members := slices.Collect(maps.Values(s.Properties))
		for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf, members, inside) {
			visit(part)
		}
	}
	for _, root := range roots {
		visit(root)
	}
	return found
}
