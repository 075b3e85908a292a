package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

const (
	documentBytesMax = 32 << 20
	scopesMax        = 64
	nameBytesMax     = 200 // of an operation
)

// Problems are all reasons why a document cannot be served. Each begins with its place: a line, or
// a method and a path.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "; ") }

// Load reads a document: OpenAPI 3.0 or 3.1, in YAML or JSON. It reads no other file and no URL.
// Its error is Problems.
func Load(name string, data []byte) (*API, error) { return LoadWith(name, data, "") }

// LoadWith is Load for a gateway whose own paths have a prefix.
func LoadWith(name string, data []byte, ownPrefix string) (*API, error) {
	l := &loading{data: data, ownPrefix: ownPrefix, hasOwn: ownPrefix == "" && bytes.Equal(data, pets)}
	doc := l.parse()
	if doc == nil {
		return nil, l.problems
	}
	sum := sha256.Sum256(data)
	a := &API{
		Name:      name,
		Hash:      hex.EncodeToString(sum[:6]),
		Source:    func() []byte { return data },
		Document:  doc,
		OwnPrefix: ownPrefix,
	}
	if doc.Info != nil {
		a.Title, a.Version = doc.Info.Title, doc.Info.Version
	}
	a.Operations = l.operations(doc)
	if len(l.problems) == 0 && !l.hasOwn {
		l.addOwn(a)
	}
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	slices.SortFunc(a.Operations, func(a, b Operation) int {
		return cmp.Or(a.Pattern().Compare(b.Pattern()), cmp.Compare(a.Method, b.Method))
	})
	return a, nil
}

// loading is what Load knows while it reads a document.
type loading struct {
	data      []byte
	ownPrefix string
	hasOwn    bool   // the document describes the gateway's own operations where they stand
	prefix    string // of all paths: that of the first server
	problems  Problems
	root      *yaml.Node // for lines; nil: not needed yet
}

func (l *loading) refuse(place, format string, args ...any) {
	l.problems = append(l.problems, place+": "+fmt.Sprintf(format, args...))
}

// find goes from the root of the document along the names of members and the numbers of items. It
// returns the value at the end, or nil if there is none. The line is that of the last member on the
// way that the document has.
func (l *loading) find(names ...string) (line int, value *yaml.Node) {
	if l.root == nil {
		l.root = new(yaml.Node)
		_ = yaml.Unmarshal(l.data, l.root) // without it, there are no lines
	}
	if len(l.root.Content) == 0 {
		return 0, nil
	}
	value = l.root.Content[0]
	for _, name := range names {
		at := -1
		switch value.Kind {
		case yaml.MappingNode:
			for i := 1; i < len(value.Content); i += 2 {
				if value.Content[i-1].Value == name {
					at, line = i, value.Content[i-1].Line
				}
			}
		case yaml.SequenceNode:
			if n, err := strconv.Atoi(name); err == nil && n < len(value.Content) {
				at = n
			}
		}
		if at < 0 {
			return line, nil
		}
		value = value.Content[at]
	}
	return line, value
}

// place returns the line of a member, if the text gives it, and the words.
func (l *loading) place(words string, names ...string) string {
	if line, _ := l.find(names...); line > 0 {
		return fmt.Sprintf("line %d: %s", line, words)
	}
	return words
}

// loaderPrefix matches what the loader says before the problem.
var loaderPrefix = regexp.MustCompile(
	`^(?:(?:failed to unmarshal data|json error|error converting YAML to JSON|error unmarshaling JSON): )+`,
)

// parse reads the document. It returns nil if it cannot be read.
func (l *loading) parse() *openapi3.T {
	if len(l.data) > documentBytesMax {
		l.refuse("the document", "it has %d bytes, and at most %d are read", len(l.data), documentBytesMax)
		return nil
	}
	isJSON := bytes.HasPrefix(bytes.TrimLeft(l.data, " \t\r\n"), []byte("{"))
	if isJSON {
		_, err := jsontext.NewDecoder(bytes.NewReader(l.data)).ReadValue()
		if twice, _ := errors.AsType[*jsontext.SyntacticError](err); errors.Is(err, jsontext.ErrDuplicateName) {
			l.refuse(fmt.Sprintf("line %d", l.lineAt(int(twice.ByteOffset))), "%s: remove one of the two",
				strings.TrimPrefix(err.Error(), "jsontext: "))
			return nil
		}
	}
	doc, err := openapi3.NewLoader().LoadFromData(l.data)
	if err != nil {
		if _, all := l.find(); all != nil {
			l.refuseReferences(all)
		}
		if len(l.problems) == 0 {
			text, asYAML, both := strings.Cut(err.Error(), ", yaml error: ")
			if both && !isJSON {
				text = asYAML
			}
			text = loaderPrefix.ReplaceAllString(text, "")
			l.refuse("the document", "%s", strings.Join(strings.Fields(text), " "))
		}
		return nil
	}
	switch version := doc.OpenAPI; {
	case strings.HasPrefix(version, "3.0") || strings.HasPrefix(version, "3.1"):
	case version == "" && doc.Extensions["swagger"] != nil:
		l.refuse(l.place("swagger", "swagger"), "use OpenAPI 3.0 or 3.1: convert the document")
		return nil
	default:
		l.refuse(l.place("openapi", "openapi"), "the version is %q: use OpenAPI 3.0 or 3.1", version)
		return nil
	}
	return doc
}

func (l *loading) lineAt(offset int) int {
	return 1 + bytes.Count(l.data[:min(offset, len(l.data))], []byte{'\n'})
}

// refuseReferences finds the references that the document does not resolve itself. Examples and
// values may have anything.
func (l *loading) refuseReferences(node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		for _, one := range node.Content {
			l.refuseReferences(one)
		}
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case slices.Contains([]string{"example", "examples", "default", "enum", "const"}, key.Value):
		case key.Value != "$ref" || value.Kind != yaml.ScalarNode:
			l.refuseReferences(value)
		case !strings.HasPrefix(value.Value, "#"):
			l.refuse(fmt.Sprintf("line %d", key.Line),
				"$ref %s is in another document, which is never read: copy it into this one", value.Value)
		case !l.resolves(value.Value):
			l.refuse(fmt.Sprintf("line %d", key.Line), "$ref %s is not in the document", value.Value)
		}
	}
}

// resolves reports whether the document has what a reference names (RFC 6901).
func (l *loading) resolves(reference string) bool {
	names := strings.Split(strings.TrimPrefix(strings.TrimPrefix(reference, "#"), "/"), "/")
	for i, name := range names {
		if unescaped, err := url.PathUnescape(name); err == nil {
			name = unescaped
		}
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	_, value := l.find(names...)
	return value != nil
}

// operations reads the operations, and makes the paths of the document complete.
func (l *loading) operations(doc *openapi3.T) (all []Operation) {
	l.prefix = l.serverPath(doc)
	complete := openapi3.NewPaths()
	scopes := map[string]bool{}
	names := map[string]string{} // by operation ID: where it is
	own := map[string]bool{}     // by operation ID: the gateway's
	if !l.hasOwn {
		for _, o := range Pets().Operations {
			if o.ByGateway {
				own[o.ID], names[o.ID] = true, "the gateway's "+ownPath(l.ownPrefix, o.Path)
			}
		}
	}
	for _, short := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		item, path := doc.Paths.Value(short), l.prefix+short
		if _, wrong := pattern(path); wrong != "" {
			l.refuse(l.place(path, "paths", short), "%s", wrong)
			continue
		}
		item.Servers = nil
		methods := item.Operations()
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			described := methods[method]
			described.Servers = nil
			o := &Operation{
				ID:           cmp.Or(described.OperationID, method+" "+path),
				Method:       method,
				Path:         path,
				IsDeprecated: described.Deprecated,
				TakesKey:     takesKey(item.Parameters) || takesKey(described.Parameters),
			}
			before := len(l.problems)
			l.extend(o, described.Extensions)
			if o.ByGateway && !l.hasOwn {
				if !own[o.ID] {
					l.refuse(l.placeOf(o),
						"x-answered-by is for the gateway's own operations: remove it, and an upstream answers")
				}
				item.SetOperation(method, nil) // it is described again, where it stands
				continue
			}
			complete.Set(path, item)
			switch first, taken := names[o.ID]; {
			case !isForwarded(method):
				l.refuse(l.placeOf(o), "the gateway does not forward %s: remove the operation", method)
			case taken:
				l.refuse(l.placeOf(o), "operationId %q is also that of %s: give each operation its own", o.ID, first)
			case !isName(o.ID):
				l.refuse(l.placeOf(o), "operationId %q is reserved, longer than %d bytes, "+
					"or has characters that cannot be printed: choose another", o.ID, nameBytesMax)
			}
			names[o.ID] = method + " " + o.Path
			scopes[o.Scope] = true
			if len(l.problems) == before {
				all = append(all, *o)
			}
		}
	}
	delete(scopes, "")
	if len(scopes) > scopesMax {
		l.refuse("x-scope", "the document has %d scopes, and at most %d are possible", len(scopes), scopesMax)
	}
	if doc.Paths != nil {
		complete.Extensions = doc.Paths.Extensions
	}
	doc.Paths, doc.Servers = complete, openapi3.Servers{{URL: "/"}}
	l.refuseClashes(all)
	if len(all) == 0 && len(l.problems) == 0 {
		l.refuse(l.place("paths", "paths"), "the document has no operations: describe at least one")
	}
	return all
}

func (l *loading) placeOf(o *Operation) string {
	return l.place(o.Method+" "+o.Path, "paths", strings.TrimPrefix(o.Path, l.prefix), strings.ToLower(o.Method))
}

// isForwarded reports whether the gateway forwards requests with a method. The field Allow lists
// methods, so they have only the characters of registered ones.
func isForwarded(method string) bool {
	const characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ-"
	return method != http.MethodTrace && method != http.MethodConnect &&
		strings.Trim(strings.ToUpper(method), characters) == ""
}

func takesKey(parameters openapi3.Parameters) bool {
	return parameters.GetByInAndName(openapi3.ParameterInHeader, KeyHeader) != nil
}

// isName reports whether an operation may have this name, which is shown in lists, logs and
// metrics.
func isName(id string) bool {
	return id != "none" && len(id) <= nameBytesMax &&
		!strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) })
}

// serverPath returns the path of the first server, which is in front of all paths.
func (l *loading) serverPath(doc *openapi3.T) string {
	if len(doc.Servers) == 0 || doc.Servers[0] == nil {
		return ""
	}
	text := doc.Servers[0].URL
	for name, variable := range doc.Servers[0].Variables {
		text = strings.ReplaceAll(text, "{"+name+"}", variable.Default)
	}
	if _, rest, isAbsolute := strings.Cut(text, "//"); isAbsolute {
		_, path, _ := strings.Cut(rest, "/")
		text = "/" + path
	}
	text = strings.TrimRight("/"+strings.TrimLeft(text, "/"), "/")
	if p, wrong := pattern(text + "/"); wrong != "" || strings.Contains(string(p), string(Star)) {
		l.refuse(l.place("servers", "servers"),
			"the path of the first server is %q: use a path without parameters, query and fragment", text)
		return ""
	}
	return text
}

// refuseClashes refuses operations between which a request could not choose, and those that stand
// in the gateway's own places.
func (l *loading) refuseClashes(all []Operation) {
	reserved := Reserved(l.ownPrefix)
	taken := map[string]string{} // by method and pattern
	for _, o := range all {
		pattern := string(o.Pattern())
		if !o.ByGateway && slices.ContainsFunc(reserved, func(r Pattern) bool { return r.Matches(pattern) }) {
			l.refuse(l.placeOf(&o), "the gateway has a page or an operation of its own at this path: "+
				"move those with GATEWAY_OWN_PREFIX or --own-prefix")
		}
		if other := taken[o.Method+pattern]; other != "" {
			l.refuse(l.placeOf(&o), "it is the same path as %s, and a request could mean either: remove one of the two",
				other)
		}
		taken[o.Method+pattern] = o.Path
	}
}
