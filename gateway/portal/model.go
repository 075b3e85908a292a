package portal

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"petgate/shared/api"
)

// model is what the templates show.
type model struct {
	Title, Version string
	Environment    string   // live or test
	Intro          string   // the first paragraph of the document's description
	Headers        []header // that every response has
	SomeHeaders    []header // that some responses have
	Operations     []operation
	Statuses       []status // errors
	Schemas        []schema
	Plans          []plan
	Scopes         []string
	Guide          map[string]string // the templates of assets/guide.md, executed
}

// Scoped returns the operations that need a scope.
func (m *model) Scoped(scope string) (found []operation) {
	for _, o := range m.Operations {
		if o.Scope == scope {
			found = append(found, o)
		}
	}
	return found
}

type operation struct {
	api.Operation
	Summary, Description string
	Parameters           []parameter
	Body                 *schema // nil: none
	Example              string  // of the body
	Responses            []response
	Target               string // path and query of the examples
	Snippets             []snippet
}

// Ends returns the day of the sunset.
func (o operation) Ends() string { return o.SunsetAt.UTC().Format("2 January 2006") }

type parameter struct {
	member
	In      string   // path, query or header
	Example string   // empty: none
	Options []string // if only these values are possible
	IsInt   bool
}

// member is a parameter of an operation, or a member of an object.
type member struct {
	Name, Description string
	Type              kind
	IsRequired        bool
	Rules             string // such as "1 to 100"; empty: none
}

// kind is a type in words. Schema is the name of the schema that it refers to, or empty.
type kind struct{ Text, Schema string }

type schema struct {
	Name, Description string
	Type              kind
	Members           []member
	Options           []string
}

type header struct {
	Name, Description, Example string
}

type response struct {
	Status      int
	Description string
	Codes       []string
	Headers     []header // that belong to the operation
	Body        kind
}

// status is an HTTP status of errors, with its codes.
type status struct {
	Status      int
	Text        string
	Description string
	Codes       []code
	Headers     []header // that only this status has
}

type code struct {
	Name       string   `json:"code"`
	When       string   `json:"when"`
	Operations []string `json:"operations"` // that can be answered with it; nil: all that have the response
}

// plan is a plan and its limits. Limits of 0 are agreed with each tenant.
type plan struct {
	Name   string `json:"name"`
	Minute int64  `json:"minute"`
	Day    int64  `json:"day"`
}

func newModel(cfg Config) (m *model, err error) {
	doc := cfg.API.Document
	intro, _, _ := strings.Cut(doc.Info.Description, "\n\n")
	m = &model{
		Title: cmp.Or(cfg.Title, doc.Info.Title), Version: doc.Info.Version, Environment: cfg.Environment.String(), Intro: intro,
	}
	if err := read(doc.Extensions, "x-plans", &m.Plans); err != nil {
		return nil, err
	}
	for _, o := range cfg.API.Operations {
		described := doc.Paths.Value(o.Path).GetOperation(o.Method)
		one, err := newOperation(o, described)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.ID, err)
		}
		m.Operations = append(m.Operations, one)
		if o.Scope != "" && !slices.Contains(m.Scopes, o.Scope) {
			m.Scopes = append(m.Scopes, o.Scope)
		}
	}
	if err := m.readErrors(doc); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		m.Schemas = append(m.Schemas, newSchema(name, doc.Components.Schemas[name].Value))
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Headers)) {
		h := doc.Components.Headers[name].Value
		one := header{Name: name, Description: strings.TrimSpace(h.Description)}
		if text, isText := h.Example.(string); isText {
			one.Example = text
		}
		if h.Required && name != "Retry-After" {
			m.Headers = append(m.Headers, one)
		} else {
			m.SomeHeaders = append(m.SomeHeaders, one)
		}
	}
	m.addOwnHeaders()
	m.Guide, err = readGuide(m)
	return m, err
}

// addOwnHeaders adds the headers that only some statuses have to SomeHeaders. A header of several statuses has a text for each.
func (m *model) addOwnHeaders() {
	shared := len(m.SomeHeaders)
	f := func(status int, headers []header) {
		for _, h := range headers {
			i := slices.IndexFunc(m.SomeHeaders, func(known header) bool { return known.Name == h.Name })
			text := fmt.Sprintf("On a %d: %s", status, h.Description)
			switch {
			case i < 0:
				m.SomeHeaders = append(m.SomeHeaders, header{Name: h.Name, Description: text})
			case i >= shared:
				m.SomeHeaders[i].Description += " " + text
			}
		}
	}
	for _, o := range m.Operations {
		for _, r := range o.Responses {
			f(r.Status, r.Headers)
		}
	}
	for _, s := range m.Statuses {
		f(s.Status, s.Headers)
	}
}

// readErrors gathers the statuses of all errors.
func (m *model) readErrors(doc *openapi3.T) error {
	statusOf := map[string]int{} // by the name of the response
	for _, item := range doc.Paths.Map() {
		for _, o := range item.Operations() {
			for text, r := range o.Responses.Map() {
				if name, shared := strings.CutPrefix(r.Ref, "#/components/responses/"); shared {
					statusOf[name], _ = strconv.Atoi(text)
				}
			}
		}
	}
	for name, r := range doc.Components.Responses {
		codes, err := codesOf(r.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		n := statusOf[name]
		m.Statuses = append(m.Statuses, status{
			Status: n, Text: http.StatusText(n), Description: *r.Value.Description, Codes: codes, Headers: ownHeaders(r.Value),
		})
	}
	slices.SortFunc(m.Statuses, func(a, b status) int { return a.Status - b.Status })
	return nil
}

func newOperation(o api.Operation, described *openapi3.Operation) (operation, error) {
	one := operation{Operation: o, Summary: described.Summary, Description: strings.TrimSpace(described.Description), Target: o.Path}
	for _, ref := range described.Parameters {
		p := ref.Value
		q := parameter{
			member: member{
				Name: p.Name, Description: p.Description, Type: kindOf(p.Schema), IsRequired: p.Required, Rules: rulesOf(p.Schema.Value),
			},
			In: p.In, Options: optionsOf(p.Schema.Value), IsInt: p.Schema.Value.Type.Is("integer"),
		}
		if p.Example != nil {
			q.Example = fmt.Sprint(p.Example)
		}
		if p.In == "path" {
			one.Target = strings.ReplaceAll(one.Target, "{"+p.Name+"}", q.Example)
		}
		one.Parameters = append(one.Parameters, q)
	}
	if described.RequestBody != nil {
		ref := described.RequestBody.Value.Content.Get("application/json").Schema
		body := newSchema(nameOf(ref), ref.Value)
		one.Body = &body
		example, err := exampleOf(body, ref.Value)
		if err != nil {
			return one, err
		}
		one.Example = example
	}
	for text, ref := range described.Responses.Map() {
		n, err := strconv.Atoi(text)
		if err != nil {
			return one, err
		}
		r := response{Status: n, Description: *ref.Value.Description, Body: kindOf(ref.Value.Content.Get("application/json").Schema)}
		codes, err := codesOf(ref.Value)
		if err != nil {
			return one, err
		}
		for _, c := range codes {
			if c.Operations == nil || slices.Contains(c.Operations, o.ID) {
				r.Codes = append(r.Codes, c.Name)
			}
		}
		if n < 400 {
			r.Headers = ownHeaders(ref.Value)
		}
		one.Responses = append(one.Responses, r)
	}
	slices.SortFunc(one.Responses, func(a, b response) int { return a.Status - b.Status })
	one.Snippets = snippets(one)
	return one, nil
}

func newSchema(name string, s *openapi3.Schema) schema {
	one := schema{Name: name, Description: s.Description, Type: kindOf(&openapi3.SchemaRef{Value: s}), Options: optionsOf(s)}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		ref := s.Properties[name]
		one.Members = append(one.Members, member{
			Name: name, Description: ref.Value.Description, Type: kindOf(ref), IsRequired: slices.Contains(s.Required, name),
			Rules: rulesOf(ref.Value),
		})
	}
	slices.SortStableFunc(one.Members, func(a, b member) int { // the required ones first, as the document lists them
		place := func(m member) int {
			if i := slices.Index(s.Required, m.Name); i >= 0 {
				return i
			}
			return len(s.Required)
		}
		return place(a) - place(b)
	})
	return one
}

// ownHeaders returns the headers that only this response describes. It omits those that it shares with other responses.
func ownHeaders(r *openapi3.Response) (own []header) {
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if h := r.Headers[name]; h.Ref == "" {
			own = append(own, header{Name: name, Description: h.Value.Description})
		}
	}
	return own
}

// exampleOf returns the example of an object as JSON, with the members in the order of its schema.
func exampleOf(object schema, s *openapi3.Schema) (string, error) {
	values, isObject := s.Example.(map[string]any)
	if !isObject {
		return "", errors.New(object.Name + " has no example")
	}
	var members []string
	for _, m := range object.Members {
		if value, found := values[m.Name]; found {
			text, err := json.Marshal(value)
			if err != nil {
				return "", err
			}
			members = append(members, fmt.Sprintf("%q: %s", m.Name, text))
		}
	}
	return "{" + strings.Join(members, ", ") + "}", nil
}

func nameOf(ref *openapi3.SchemaRef) string {
	name, _ := strings.CutPrefix(ref.Ref, "#/components/schemas/")
	return name
}

func kindOf(ref *openapi3.SchemaRef) kind {
	s := ref.Value
	switch {
	case ref.Ref != "":
		return kind{nameOf(ref), nameOf(ref)}
	case len(s.AllOf) == 1: // a reference with a description of its own
		return kindOf(s.AllOf[0])
	case len(s.AnyOf) > 0:
		all := kindOf(s.AnyOf[0])
		for _, one := range s.AnyOf[1:] {
			all.Text += " or " + kindOf(one).Text
		}
		return all
	case s.Type.Is("array"):
		items := kindOf(s.Items)
		return kind{"array of " + items.Text, items.Schema}
	case s.Type.Is("integer"):
		return kind{Text: "integer"}
	case s.Format == "date-time":
		return kind{Text: "date and time"}
	}
	return kind{Text: strings.Join(s.Type.Slice(), " or ")}
}

func optionsOf(s *openapi3.Schema) (options []string) {
	for _, value := range s.Enum {
		options = append(options, fmt.Sprint(value))
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

// codesOf returns the codes of an error.
func codesOf(r *openapi3.Response) (codes []code, err error) {
	if r.Extensions["x-codes"] == nil { // not an error
		return nil, nil
	}
	return codes, read(r.Extensions, "x-codes", &codes)
}

// read decodes an extension.
func read(extensions map[string]any, name string, to any) error {
	value, found := extensions[name]
	if !found {
		return errors.New(name + " is missing")
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
