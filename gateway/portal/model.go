package portal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"petgate/shared/api"
	"petgate/shared/api/code"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
)

// model is what the templates show.
type model struct {
	Title, Version string
	Prefix         string   // of keys, as in ptg_live_
	Intro          string   // the first paragraph of the document's description
	Headers        []header // that every response has
	SomeHeaders    []header // that some responses have
	Groups         []*group // all operations
	IsSplit        bool     // each group has a page of its own
	HasSearch      bool     // there are more operations than one finds at a glance
	OwnPrefix      string   // of the pages
	IsForeign      bool     // the gateway's errors are not in the API's document
	Statuses       []status // errors
	Error          string   // the name of the schema of errors; empty: none
	ErrorExample   string
	Schemas        []schema
	Scopes         []string
	Bans           ban.Rule
	Report         *operation // how much is left; nil: there is none
	Statement      *operation // what was used; nil: there is none
	HasCosts       bool       // an operation costs more than 1

	doc    *openapi3.T
	shared []response // the errors of every operation
	ids    map[string]bool
}

// group is operations that belong together: those of a tag, or all.
type group struct {
	Name, Description string
	ID                string // of its element, and the last part of its page's path
	Operations        []*operation
}

// All returns all operations.
func (m *model) All() (all []*operation) {
	for _, g := range m.Groups {
		all = append(all, g.Operations...)
	}
	return all
}

// Scoped returns the operations that need a scope.
func (m *model) Scoped(scope string) []*operation {
	return slices.DeleteFunc(m.All(), func(o *operation) bool { return o.Scope != scope })
}

type operation struct {
	api.Operation
	Anchor               string // the ID of its element
	Page                 string // the path of its page
	Summary, Description string
	Parameters           []parameter
	Body                 *body // nil: none
	Responses            []response
	Shared               []response // errors that it shares with the other operations
	Answer               *answer    // nil: unknown
	Target               string     // path and query of the examples
	Snippets             []snippet

	tag     string
	schemas []*openapi3.SchemaRef // of its parameters, body and responses
}

// Ends returns the day of the sunset.
func (o *operation) Ends() string { return o.SunsetAt.UTC().Format("2 January 2006") }

// IsTryable reports whether the page can send the operation's requests.
func (o *operation) IsTryable() bool {
	return o.Method != http.MethodTrace && o.Method != http.MethodConnect &&
		(o.Body == nil || o.Body.IsText && o.Method != http.MethodGet)
}

type parameter struct {
	member
	In      string // path, query, header or cookie
	Example string // empty: none
	IsInt   bool
}

// body is the body of a request.
type body struct {
	schema
	MediaType string
	IsText    bool
	IsJSON    bool
	Example   any      // of JSON
	Text      string   // the example as it is sent
	Form      []string // the fields of a multipart form, as name=value
}

// answer is an example of a response.
type answer struct{ Status, Text string }

type header struct {
	Name, Description, Example string
}

type response struct {
	Status      string // a number, 4XX or default
	Class       string // its first character
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
	Codes       []errorCode
	Headers     []header // that only this status has
}

type errorCode struct {
	Name       string   `json:"code"`
	When       string   `json:"when"`
	Operations []string `json:"operations"` // that can be answered with it; nil: all that have the response
	By         string   `json:"by"`         // service: only the pet service sends it
}

// operationsMax is how many operations a page has. A document with more has a page for each tag.
const operationsMax = 50

// pageIDs are the IDs of elements that every page has.
const pageIDs = "top content key key-field key-entry key-held key-hint key-forget key-shown key-state " +
	"start sending clients keys limits usage usage-drawing operations errors schemas machines search contents"

func newModel(cfg Config) *model {
	doc := cfg.API.Document
	m := &model{
		Title:   cmp.Or(cfg.Title, cfg.API.Title),
		Version: cfg.API.Version,
		Prefix:  apikey.Beginning(cmp.Or(cfg.KeyPrefix, apikey.DefaultPrefix), cfg.Environment),
		Bans:    cfg.Bans,
		doc:     doc,
		ids:     map[string]bool{},
	}
	if doc.Info != nil {
		m.Intro, _, _ = strings.Cut(strings.TrimSpace(doc.Info.Description), "\n\n")
	}
	if doc.Components == nil {
		doc.Components = &openapi3.Components{}
	}
	for _, id := range strings.Fields(pageIDs) {
		m.ids[id] = true
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		if ref := doc.Components.Schemas[name]; !isEmpty(ref) {
			m.Schemas = append(m.Schemas, newSchema(name, ref.Value))
			m.ids[m.Schemas[len(m.Schemas)-1].ID] = true
		}
	}
	pets := api.Pets()
	m.OwnPrefix = cfg.API.OwnPrefix
	m.IsForeign = cfg.API.Hash != pets.Hash
	m.HasCosts = len(cfg.API.Costs()) > 0
	m.readGateway(pets)
	var all []*operation
	for _, o := range cfg.API.Operations {
		item := doc.Paths.Value(o.Path)
		one := m.newOperation(o, item, item.GetOperation(o.Method))
		all = append(all, one)
		switch {
		case o.IsReport():
			m.Report = one
		case o.ByGateway:
			m.Statement = one
		}
		if o.Scope != "" && !slices.Contains(m.Scopes, o.Scope) {
			m.Scopes = append(m.Scopes, o.Scope)
		}
	}
	slices.SortStableFunc(all, func(a, b *operation) int { // the gateway's own ones are the last
		switch {
		case a.ByGateway == b.ByGateway:
			return 0
		case a.ByGateway:
			return 1
		}
		return -1
	})
	m.group(all)
	return m
}

// id returns an ID for an element, made from a text. No other element has it.
func (m *model) id(text string) string {
	id := strings.Trim(notID.ReplaceAllString(text, "-"), "-")
	for n, base := 2, cmp.Or(id, "operation"); id == "" || m.ids[id]; n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	m.ids[id] = true
	return id
}

var notID = regexp.MustCompile(`[^A-Za-z0-9]+`)

// readGateway reads what the gateway answers itself, whatever API is behind it. The pets' document
// describes it.
func (m *model) readGateway(pets *api.API) {
	own := pets.Document.Components
	isOwn := func(operation string) bool {
		return slices.ContainsFunc(pets.Operations,
			func(o api.Operation) bool { return o.ID == operation && o.ByGateway })
	}
	for _, r := range own.Responses {
		codes := codesOf(r.Value)
		number := code.StatusOf(codes[0].Name)
		s := status{
			Status:      number,
			Text:        http.StatusText(number),
			Description: *r.Value.Description,
			Headers:     ownHeaders(r.Value),
		}
		always := response{Status: strconv.Itoa(number), Class: strconv.Itoa(number / 100)}
		for _, c := range codes {
			if m.IsForeign && c.By == "service" && !slices.ContainsFunc(c.Operations, isOwn) {
				continue
			}
			s.Codes = append(s.Codes, c)
			isAlways := !slices.ContainsFunc(pets.Operations, func(o api.Operation) bool {
				return !o.ByGateway && (c.Operations != nil && !slices.Contains(c.Operations, o.ID) ||
					pets.Document.Paths.Value(o.Path).GetOperation(o.Method).Responses.Value(always.Status) == nil)
			})
			if isAlways && (!m.IsForeign || c.By == "") {
				always.Codes = append(always.Codes, c.Name)
			}
		}
		if len(s.Codes) > 0 {
			m.Statuses = append(m.Statuses, s)
		}
		if len(always.Codes) > 0 {
			m.shared = append(m.shared, always)
		}
	}
	slices.SortFunc(m.Statuses, func(a, b status) int { return a.Status - b.Status })
	slices.SortFunc(m.shared, func(a, b response) int { return cmp.Compare(a.Status, b.Status) })
	for _, name := range slices.Sorted(maps.Keys(own.Headers)) {
		h := own.Headers[name].Value
		one := header{Name: name, Description: strings.TrimSpace(h.Description)}
		one.Example, _ = h.Example.(string)
		if h.Required && name != "Retry-After" {
			m.Headers = append(m.Headers, one)
		} else {
			m.SomeHeaders = append(m.SomeHeaders, one)
		}
	}
	for _, s := range m.Statuses {
		for _, h := range s.Headers {
			text := fmt.Sprintf("On a %d: %s", s.Status, h.Description)
			if i := slices.IndexFunc(m.SomeHeaders, func(known header) bool { return known.Name == h.Name }); i >= 0 {
				m.SomeHeaders[i].Description += " " + text
			} else {
				m.SomeHeaders = append(m.SomeHeaders, header{Name: h.Name, Description: text})
			}
		}
	}
	for _, r := range own.Responses {
		if _, media := mediaOf(r.Value.Content); media != nil {
			value, _ := exampleOf(media, false)
			m.ErrorExample = jsonLiterals.format(value, "")
		}
	}
}

// ownHeaders returns the headers that only this response describes. It omits those that it shares
// with other responses.
func ownHeaders(r *openapi3.Response) (own []header) {
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if h := r.Headers[name]; h != nil && h.Value != nil && h.Ref == "" {
			own = append(own, header{Name: name, Description: strings.TrimSpace(h.Value.Description)})
		}
	}
	return own
}

// codesOf returns the codes of an error.
func codesOf(r *openapi3.Response) (codes []errorCode) {
	if text, err := json.Marshal(r.Extensions["x-codes"]); err == nil {
		_ = json.Unmarshal(text, &codes) // another document may use the name for something else
	}
	return codes
}

func (m *model) newOperation(o api.Operation, item *openapi3.PathItem, described *openapi3.Operation) *operation {
	one := &operation{
		Operation: o, Anchor: m.id(o.ID), Summary: cmp.Or(strings.TrimSpace(described.Summary), o.ID),
		Description: strings.TrimSpace(described.Description),
	}
	if len(described.Tags) > 0 {
		one.tag = described.Tags[0]
	}
	for _, ref := range slices.Concat(item.Parameters, described.Parameters) {
		if ref != nil && ref.Value != nil {
			q, schema := newParameter(ref.Value)
			one.schemas = append(one.schemas, schema)
			one.Parameters = append(
				slices.DeleteFunc(one.Parameters, func(p parameter) bool { return p.Name == q.Name && p.In == q.In }),
				q)
		}
	}
	one.setTarget()
	if ref := described.RequestBody; ref != nil && ref.Value != nil {
		if name, media := mediaOf(ref.Value.Content); media != nil {
			one.Body = newBody(name, media)
			one.schemas = append(one.schemas, media.Schema)
		}
	}
	m.addResponses(one, described)
	one.Snippets = snippets(one, described.Extensions["x-codeSamples"])
	return one
}

// mediaOf returns the media type that is shown: JSON if there is JSON.
func mediaOf(content openapi3.Content) (name string, media *openapi3.MediaType) {
	for _, one := range slices.Sorted(maps.Keys(content)) {
		if content[one] != nil && (media == nil || one == "application/json" || isJSON(one) && !isJSON(name)) {
			name, media = one, content[one]
		}
	}
	return name, media
}

func isJSON(mediaType string) bool {
	name, _, _ := strings.Cut(mediaType, ";")
	return strings.HasSuffix(strings.TrimSpace(name), "json")
}

// newParameter returns a parameter and its schema.
func newParameter(p *openapi3.Parameter) (parameter, *openapi3.SchemaRef) {
	media := &openapi3.MediaType{Schema: p.Schema}
	if _, content := mediaOf(p.Content); content != nil {
		media = content
	}
	q := parameter{
		In: p.In,
		member: member{
			Name:        p.Name,
			Description: p.Description,
			Type:        kindOf(media.Schema, depthMax),
			IsRequired:  p.Required,
		},
	}
	if !isEmpty(media.Schema) {
		s := media.Schema.Value
		q.Rules, q.Options, q.IsInt = rulesOf(s), optionsOf(s), s.Type.Is("integer")
	}
	value, _ := exampleOf(
		&openapi3.MediaType{Schema: media.Schema, Example: cmp.Or(p.Example, media.Example), Examples: p.Examples},
		true)
	switch v := value.(type) {
	case string:
		q.Example = v
	case object, nil:
	case []any:
		q.Example = strings.NewReplacer("[", "", "]", "", `"`, "", ", ", ",").Replace(jsonLiterals.format(v, ""))
	default:
		q.Example = jsonLiterals.format(v, "")
	}
	switch isGiven := p.Example != nil || len(p.Examples) > 0; {
	case !p.Required && !isGiven:
		q.Example = ""
	case q.Example == "" || q.Example == "string": // made up
		q.Example = p.Name
	}
	return q, media.Schema
}

// setTarget makes the path and the query of the examples: with all that a request must have.
func (o *operation) setTarget() {
	o.Target = o.Path
	query := url.Values{}
	for _, p := range o.Parameters {
		switch {
		case p.In == "path":
			o.Target = strings.ReplaceAll(o.Target, "{"+p.Name+"}", url.PathEscape(p.Example))
		case p.In == "query" && p.IsRequired:
			query.Set(p.Name, p.Example)
		}
	}
	if len(query) > 0 {
		o.Target += "?" + query.Encode()
	}
}

func newBody(mediaType string, media *openapi3.MediaType) *body {
	b := &body{MediaType: mediaType, schema: schema{Type: kindOf(media.Schema, depthMax)}}
	if !isEmpty(media.Schema) {
		b.schema = newSchema(nameOf(media.Schema), media.Schema.Value)
	}
	value, found := exampleOf(media, true)
	form, isForm := value.(object)
	text, isString := value.(string)
	fields, lines := url.Values{}, []string(nil)
	for _, p := range form {
		text := strings.Trim(jsonLiterals.format(p.value, ""), `"`)
		fields.Set(p.name, text)
		lines = append(lines, p.name+"="+text)
	}
	switch {
	case isJSON(mediaType):
		b.IsText, b.IsJSON, b.Example = true, true, value
		if found {
			b.Text = jsonLiterals.format(value, "")
		}
	case mediaType == "application/x-www-form-urlencoded" && isForm:
		b.IsText, b.Text = true, fields.Encode()
	case mediaType == "multipart/form-data":
		b.Form = lines
	case strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "xml"):
		b.IsText = true
		if isString {
			b.Text = text
		}
	}
	return b
}

// addResponses adds the responses, and the example of the first that is no error.
func (m *model) addResponses(o *operation, described *openapi3.Operation) {
	for _, text := range slices.Sorted(maps.Keys(described.Responses.Map())) { // default is the last one
		ref := described.Responses.Value(text)
		if ref == nil || ref.Value == nil || text == "" {
			continue
		}
		r := response{Status: text, Class: text[:1]}
		if ref.Value.Description != nil {
			r.Description = strings.TrimSpace(*ref.Value.Description)
		}
		name, media := mediaOf(ref.Value.Content)
		isError := text[0] == '4' || text[0] == '5'
		if media != nil {
			o.schemas = append(o.schemas, media.Schema)
			r.Body = kindOf(media.Schema, depthMax)
			if !isJSON(name) {
				r.Body = kind{{Text: name}}
			}
			value, found := exampleOf(media, false)
			example, isString := value.(string)
			if o.Answer == nil && !isError && found && (isJSON(name) || isString && media.Example != nil) {
				if !isString || isJSON(name) {
					example = jsonLiterals.format(value, "")
				}
				o.Answer = &answer{strings.Replace(text, "default", "", 1), example}
			}
			if isError && m.Error == "" && o.ByGateway {
				m.Error = nameOf(media.Schema)
			}
		}
		if !isError {
			r.Headers = ownHeaders(ref.Value)
		}
		always := response{Status: r.Status, Class: r.Class}
		for _, c := range codesOf(ref.Value) {
			isHere := func(s response) bool { return s.Status == text && slices.Contains(s.Codes, c.Name) }
			switch {
			case c.Operations != nil && !slices.Contains(c.Operations, o.ID):
			case slices.ContainsFunc(m.shared, isHere):
				always.Codes = append(always.Codes, c.Name)
			default:
				r.Codes = append(r.Codes, c.Name)
			}
		}
		if len(r.Codes) > 0 || len(always.Codes) == 0 {
			o.Responses = append(o.Responses, r)
		}
		if len(always.Codes) > 0 {
			o.Shared = append(o.Shared, always)
		}
	}
	if m.IsForeign && !o.ByGateway {
		o.Shared = m.shared
	}
}

// group puts operations together by their first tag, or by their path if the document has no tags.
func (m *model) group(all []*operation) {
	m.HasSearch = len(all) > 15
	if !m.HasSearch {
		m.Groups = []*group{{Name: "Operations", ID: "operations", Operations: all}}
	} else {
		m.groupByTag(all)
	}
	m.IsSplit = len(all) > operationsMax
	if m.IsSplit { // a long group continues on further pages
		var pages []*group
		for _, g := range m.Groups {
			for n, part := range slices.Collect(slices.Chunk(g.Operations, operationsMax)) {
				one := *g
				one.Operations = part
				if n > 0 {
					one.Name = fmt.Sprintf("%s, part %d", g.Name, n+1)
					one.ID = m.id(fmt.Sprintf("%s-%d", g.ID, n+1))
					one.Description = ""
				}
				pages = append(pages, &one)
			}
		}
		m.Groups = pages
	}
	for _, g := range m.Groups {
		for _, o := range g.Operations {
			o.Page = Home
			if m.IsSplit {
				o.Page = Home + "/" + g.ID
			}
		}
	}
}

func (m *model) groupByTag(all []*operation) {
	byName := map[string]*group{}
	add := func(name, description string) *group {
		if byName[name] == nil {
			byName[name] = &group{
				Name:        name,
				Description: strings.TrimSpace(description),
				ID:          m.id(strings.ToLower(name)),
			}
			m.Groups = append(m.Groups, byName[name])
		}
		return byName[name]
	}
	for _, t := range m.doc.Tags {
		if t != nil {
			add(t.Name, t.Description)
		}
	}
	hasTags := slices.ContainsFunc(all, func(o *operation) bool { return o.tag != "" && !o.ByGateway })
	for _, o := range all {
		name := o.tag
		if name == "" && !hasTags {
			name = firstSegment(o.Path)
		}
		g := add(cmp.Or(name, "Other"), "")
		g.Operations = append(g.Operations, o)
	}
	m.Groups = slices.DeleteFunc(m.Groups, func(g *group) bool { return len(g.Operations) == 0 })
}

// firstSegment returns the first segment of a path that says something: not a version or a
// parameter.
func firstSegment(path string) string {
	for segment := range strings.SplitSeq(path, "/") {
		if segment != "" && !version.MatchString(segment) && !strings.Contains(segment, "{") {
			return segment
		}
	}
	return ""
}

var version = regexp.MustCompile(`^(api|v[0-9.]+)$`)
