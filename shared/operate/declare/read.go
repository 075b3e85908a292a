package declare

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ListedMax limits how many mistakes of one document, or keys that it cannot change, are listed.
const ListedMax = 20

// Mistakes are what is wrong with a document. Nothing was tried.
type Mistakes struct {
	Problem string
	List    []string // the first ListedMax mistakes, each with its line and member
	more    int      // that are not listed
}

// Error lists the mistakes, one a line.
func (m *Mistakes) Error() string {
	text := strings.Join(append([]string{m.Problem}, m.List...), "\n  ")
	if m.more > 0 {
		text += fmt.Sprintf("\n  and %d more", m.more)
	}
	return text
}

// Line lists the mistakes in one line.
func (m *Mistakes) Line() string {
	text := strings.TrimSpace(m.Problem + " " + strings.Join(m.List, "; "))
	if m.more > 0 {
		text += fmt.Sprintf("; and %d more", m.more)
	}
	return text
}

// mistakeBytesMax limits the text of a mistake: it may repeat a value of any length.
const mistakeBytesMax = 500

// problems collects what is wrong with a document. It keeps what is listed, and counts the rest: a
// gateway, which serves clients, may be sent a document of mistakes alone.
type problems struct {
	source string
	list   []string
	more   int
}

func (p *problems) add(at place, format string, args ...any) {
	if len(p.list) == ListedMax {
		p.more++
		return
	}
	text := fmt.Sprintf("%s:%d: %s: %s", p.source, at.line, at.member, fmt.Sprintf(format, args...))
	if len(text) > mistakeBytesMax {
		text = strings.ToValidUTF8(text[:mistakeBytesMax], "") + "…"
	}
	p.list = append(p.list, text)
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &Mistakes{Problem: "the file cannot be applied. Nothing was changed.", List: p.list, more: p.more}
}

// Read reads one document of YAML or JSON. source names it in mistakes: a path, for example.
// Errors: a *Mistakes, which names every problem with its line and member.
func Read(source string, text []byte) (Document, error) {
	d := Document{source: source}
	r := reader{problems{source: source}, map[reflect.Type]members{}}
	root, err := r.parse(text)
	if err != nil {
		return d, err
	}
	r.value(root, place{root.Line, "document"}, reflect.ValueOf(&d).Elem())
	r.check(d)
	return d, r.err()
}

// reader reads the nodes of a document. The YAML library's own decoder does not name members in its
// errors.
type reader struct {
	problems
	known map[reflect.Type]members // found once: a document may have many thousand records
}

// members are the members of one type.
type members struct {
	all    []Member
	byName map[string]Member
	names  string // for messages
}

func (r *reader) membersOf(t reflect.Type) members {
	m, isKnown := r.known[t]
	if !isKnown {
		m = members{all: Members(t), byName: map[string]Member{}}
		for _, one := range m.all {
			m.byName[one.Name] = one
		}
		m.names = strings.Join(slices.Sorted(maps.Keys(m.byName)), ", ")
		r.known[t] = m
	}
	return m
}

// parse returns the first node of a text. JSON has a parser of its own: most of it is YAML too, but
// not its pairs of surrogates, which programs write for characters like 🙂.
func (r *reader) parse(text []byte) (*yaml.Node, error) {
	if json.Valid(text) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		p := jsonParser{text: text, decoder: decoder}
		return p.next(), nil
	}
	var root, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&root)
	if err == nil {
		err = decoder.Decode(&second)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if !strings.HasPrefix(text, "line ") { // the library leaves out the first line
			text = "line 1: " + text
		}
		return nil, &Mistakes{Problem: r.source + " is not YAML: " + text}
	}
	if len(root.Content) == 0 {
		return nil, &Mistakes{Problem: r.source + " is empty: it needs a version"}
	}
	if len(second.Content) > 0 {
		r.add(place{second.Line, "document"},
			"a file has one document, and a second one begins here: write it to another file")
	}
	return root.Content[0], nil
}

// jsonParser makes nodes of a valid JSON text.
type jsonParser struct {
	text    []byte
	decoder *json.Decoder
	line    int // how many line ends are before offset
	offset  int
}

// next returns the node that begins at the next token. Errors of the decoder are left out: the text
// is valid.
func (p *jsonParser) next() *yaml.Node {
	token, _ := p.decoder.Token()
	end := int(p.decoder.InputOffset())
	p.line += bytes.Count(p.text[p.offset:end], []byte("\n"))
	p.offset = end
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.line + 1, Value: fmt.Sprint(token)}
	switch token := token.(type) {
	case nil:
		n.Tag, n.Value = "!!null", ""
	case bool:
		n.Tag = "!!bool"
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if token == '{' {
			n.Kind = yaml.MappingNode // its content: each name before its value
		}
		for p.decoder.More() {
			n.Content = append(n.Content, p.next())
		}
		_, _ = p.decoder.Token() // the end
	}
	return n
}

// value reads a node. A text is read in the same way as the value of a flag is read on the command
// line.
func (r *reader) value(n *yaml.Node, at place, to reflect.Value) {
	text, isText := to.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case n.Kind == yaml.AliasNode:
		r.add(at, "aliases are not supported: write the value out")
	case isText && n.Kind != yaml.ScalarNode:
		r.add(at, "it has to be one value")
	case isText:
		if err := text.UnmarshalText([]byte(n.Value)); err != nil {
			r.add(at, "%v", err)
		}
	case to.Kind() == reflect.Bool:
		if n.Tag != "!!bool" || n.Decode(to.Addr().Interface()) != nil {
			r.add(at, "%q is neither true nor false", n.Value)
		}
	case to.Kind() == reflect.Slice:
		r.list(n, at, to)
	default:
		r.mapping(n, at, to)
	}
}

// list reads the elements of a list.
func (r *reader) list(n *yaml.Node, at place, to reflect.Value) {
	to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
	if n.Kind != yaml.SequenceNode && n.Tag != "!!null" {
		r.add(at, "it has to be a list")
		return
	}
	for i, element := range n.Content {
		r.value(element, place{element.Line, fmt.Sprintf("%s[%d]", at.member, i)}, to.Index(i))
	}
}

// mapping reads the members of a struct. Each may be given once.
func (r *reader) mapping(n *yaml.Node, at place, to reflect.Value) {
	if where := to.FieldByName("At"); where.IsValid() {
		where.Set(reflect.ValueOf(at))
	}
	members := r.membersOf(to.Type())
	names := members.names
	if n.Kind != yaml.MappingNode {
		r.add(at, "it has to be a mapping: %s", names)
		return
	}
	prefix := at.member + "."
	if at.member == "document" {
		prefix = ""
	}
	given := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		name := n.Content[i].Value
		here := place{n.Content[i].Line, prefix + name}
		switch m, exists := members.byName[name]; {
		case !exists:
			r.add(here, "there is no such member: use %s", names)
		case given[name]:
			r.add(here, "it is given twice")
		default:
			r.value(n.Content[i+1], here, to.FieldByIndex(m.Index))
		}
		given[name] = true
	}
	for _, m := range members.all {
		if m.IsRequired && !given[m.Name] {
			r.add(at, "the member %q is missing%s", m.Name, missingWays[m.Name])
		}
	}
}

// Member is a member of a document, or of a plan, tenant or key in it.
type Member struct {
	reflect.StructField
	Name       string
	IsRequired bool
}

// Members lists the members of a type, also those of embedded structs.
func Members(t reflect.Type) (all []Member) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" { // a struct of several members, or the place
			continue
		}
		_, isRequired := f.Tag.Lookup("required")
		all = append(all, Member{f, name, isRequired})
	}
	return all
}

// missingWays say more about members that are missing. Only keys have IDs.
var missingWays = map[string]string{
	"id": ": only keys that exist can be named here. `keyadmin key create` creates one and shows its ID",
}

// check adds a problem for everything that the document declares twice.
func (r *reader) check(d Document) {
	seen := map[string]int{}
	once := func(at place, kind, name string) {
		if first := seen[kind+name]; first != 0 && name != "" {
			r.add(at, "%s %q is already declared in line %d", kind, name, first)
			return
		}
		seen[kind+name] = at.line
	}
	for _, p := range d.Plans {
		once(p.At, "plan", string(p.Name))
	}
	for _, t := range d.Tenants {
		once(t.At, "tenant", string(t.Name))
		for _, k := range t.Keys {
			if !k.ID.IsZero() {
				once(k.At, "key", k.ID.String())
			}
		}
	}
}
