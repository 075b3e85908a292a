package main

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// documentVersion is the format of the document.
const documentVersion = 1

// documentHead begins an exported document.
const documentHead = `# Plans, tenants and keys of Petgate, as written by: keyadmin export
# What is named here is declared as a whole: a member that is left out has its default. A tenant without the member keys
# keeps its keys. Tokens are not part of it.
`

// What the document has of each record. The order of the members is the order in the file.
type (
	documentHeader struct {
		Version int            `yaml:"version"`
		Plans   []documentPlan `yaml:"plans"`
	}
	documentPlan struct {
		Name   string `yaml:"name"`
		Minute int64  `yaml:"minute,omitempty"`
		Day    int64  `yaml:"day,omitempty"`
	}
	documentTenant struct {
		Name      string        `yaml:"name"`
		Plan      string        `yaml:"plan"`
		Minute    int64         `yaml:"minute,omitempty"`
		Day       int64         `yaml:"day,omitempty"`
		Suspended bool          `yaml:"suspended,omitempty"`
		Keys      []documentKey `yaml:"keys,omitempty"`
	}
	documentKey struct {
		ID          string   `yaml:"id"`
		Name        string   `yaml:"name"`
		Environment string   `yaml:"environment"`
		Scopes      []string `yaml:"scopes,flow"`
		Allow       []string `yaml:"allow,omitempty,flow"`
		Expires     string   `yaml:"expires,omitempty"`
	}
)

// documentWriter writes a state as YAML, some rows at a time. The same state always gives the same bytes, on every database.
type documentWriter struct {
	to      io.Writer
	now     instant.Millis
	tenants []documentTenant // not written yet
	keys    []documentKey    // not written yet, of the last tenant that was written
	size    int              // how many tenants and keys are not written yet
	any     bool             // whether a tenant was written
}

// documentRows is how many tenants and keys are written at once.
const documentRows = 1000

func (d *documentWriter) plans(plans []keystore.Plan) error {
	head := documentHeader{Version: documentVersion, Plans: []documentPlan{}}
	for _, p := range plans {
		head.Plans = append(head.Plans, documentPlan{p.Name, p.Limits.Minute, p.Limits.Day})
	}
	// The databases sort the names of plans differently.
	slices.SortFunc(head.Plans, func(a, b documentPlan) int { return strings.Compare(a.Name, b.Name) })
	if _, err := io.WriteString(d.to, documentHead); err != nil {
		return err
	}
	return d.write("", head)
}

func (d *documentWriter) tenant(t keystore.Tenant) error {
	err := d.full()
	d.tenants = append(d.tenants, documentTenant{t.Name, t.Plan, t.Override.Minute, t.Override.Day, t.Suspended, nil})
	return err
}

func (d *documentWriter) key(k keystore.Key) error {
	if !k.InUse(d.now) {
		return nil
	}
	v := operate.ViewKey(k, operate.Owner{}, 0, d.now)
	keys := &d.keys
	if n := len(d.tenants); n > 0 {
		keys = &d.tenants[n-1].Keys
	}
	if len(*keys) > 0 || len(d.tenants) == 0 { // else the tenant would be written without its member keys
		if err := d.full(); err != nil {
			return err
		}
		if len(d.tenants) == 0 {
			keys = &d.keys
		}
	}
	d.size++
	*keys = append(*keys, documentKey{v.ID, v.Name, v.Environment, v.Scopes, v.Allow, v.ExpiresAt})
	return nil
}

// full counts a row, and writes the rows before if there are many.
func (d *documentWriter) full() error {
	if d.size++; d.size <= documentRows {
		return nil
	}
	d.size = 1
	return d.flush()
}

func (d *documentWriter) flush() error {
	if len(d.keys) > 0 {
		if err := d.write("      ", d.keys); err != nil {
			return err
		}
	}
	if len(d.tenants) > 0 {
		if !d.any {
			if _, err := io.WriteString(d.to, "tenants:\n"); err != nil {
				return err
			}
		}
		if err := d.write("  ", d.tenants); err != nil {
			return err
		}
		d.any = true
	}
	d.keys, d.tenants = d.keys[:0], d.tenants[:0]
	return nil
}

func (d *documentWriter) end() error {
	err := d.flush()
	if err == nil && !d.any {
		_, err = io.WriteString(d.to, "tenants: []\n")
	}
	return err
}

// write writes a value with an indent.
func (d *documentWriter) write(indent string, value any) error {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		if _, err := d.to.Write(append([]byte(indent), line...)); err != nil {
			return err
		}
	}
	return nil
}

// place is where something stands in a file.
type place struct {
	line   int
	member string // tenants[2].plan
}

type declaredPlan struct {
	place
	name   planName
	limits plan.Limits
}

type declaredTenant struct {
	place
	name      name
	plan      planName
	override  plan.Limits
	suspended bool
	hasKeys   bool // the file names the tenant's keys
	keys      []declaredKey
}

type declaredKey struct {
	place
	id          id.Key
	name        name
	environment apikey.Environment
	scopes      apikey.Scopes
	allow       keystore.Prefixes
	expiresAt   instant.Millis
}

// document is a file that was read.
type document struct {
	plans   []declaredPlan
	tenants []declaredTenant
}

// problemsMax limits the problems of one file that are listed.
const problemsMax = 20

// problems are what is wrong with a file.
type problems struct {
	file string
	list []string
}

func (p *problems) add(at place, format string, args ...any) {
	p.list = append(p.list, fmt.Sprintf("%s:%d: %s: %s", p.file, at.line, at.member, fmt.Sprintf(format, args...)))
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	more := ""
	if n := len(p.list) - problemsMax; n > 0 {
		more = fmt.Sprintf("\n  and %d more", n)
	}
	return usageErrorf("the file cannot be applied. Nothing was changed.\n  %s%s", strings.Join(p.list[:min(len(p.list), problemsMax)], "\n  "), more)
}

// readDocument reads a file with one YAML document. Its error names every problem with its line and member.
func readDocument(file string, text []byte) (document, error) {
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
		return document{}, usageErrorf("%s is not YAML: %s", file, text)
	}
	r := reader{problems: problems{file: file}}
	var d document
	if len(root.Content) == 0 {
		return d, usageErrorf("%s is empty: it needs a version", file)
	}
	if len(second.Content) > 0 {
		r.add(place{second.Line, "document"}, "a file has one document, and a second one begins here: write it to another file")
	}
	version := 0
	r.object(root.Content[0], "document", []string{"version"}, map[string]func(*yaml.Node, place){
		"version": func(n *yaml.Node, at place) {
			if n.Decode(&version) != nil || version != documentVersion {
				r.add(at, "%q is not a version of the format: this keyadmin knows version %d", n.Value, documentVersion)
			}
		},
		"plans":   func(n *yaml.Node, at place) { d.plans = each(&r, n, at, r.plan) },
		"tenants": func(n *yaml.Node, at place) { d.tenants = each(&r, n, at, r.tenant) },
	})
	r.unique(d)
	return d, r.err()
}

// reader reads the nodes of a YAML document.
type reader struct{ problems }

// object reads the members of a mapping. Each member may be given once.
func (r *reader) object(n *yaml.Node, path string, required []string, members map[string]func(*yaml.Node, place)) {
	if n.Kind != yaml.MappingNode {
		r.add(place{n.Line, path}, "it has to be a mapping: %s", strings.Join(sortedKeys(members), ", "))
		return
	}
	prefix := path + "."
	if path == "document" {
		prefix = ""
	}
	given := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		member, value := n.Content[i].Value, n.Content[i+1]
		at := place{n.Content[i].Line, prefix + member}
		switch read := members[member]; {
		case read == nil:
			r.add(at, "there is no such member%s", cmp.Or(didYouMean(member, sortedKeys(members)), ": use "+strings.Join(sortedKeys(members), ", ")))
		case given[member]:
			r.add(at, "it is given twice")
		case value.Kind == yaml.AliasNode:
			r.add(at, "aliases are not supported: write the value out")
		default:
			read(value, at)
		}
		given[member] = true
	}
	for _, member := range required {
		if !given[member] {
			r.add(place{n.Line, path}, "the member %q is missing%s", member, missingWays[member])
		}
	}
}

// missingWays say more about members that are missing. Only keys have IDs.
var missingWays = map[string]string{"id": ": only keys that exist can be named here. `keyadmin key create` creates one and shows its ID"}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// each reads the elements of a list.
func each[T any](r *reader, n *yaml.Node, at place, read func(*yaml.Node, string) T) []T {
	if n.Kind != yaml.SequenceNode {
		if n.Tag != "!!null" {
			r.add(at, "it has to be a list")
		}
		return nil
	}
	list := make([]T, 0, len(n.Content))
	for i, element := range n.Content {
		list = append(list, read(element, fmt.Sprintf("%s[%d]", at.member, i)))
	}
	return list
}

// text reads a value in the same way as the value of a flag is read on the command line.
func (r *reader) text(target encoding.TextUnmarshaler) func(*yaml.Node, place) {
	return func(n *yaml.Node, at place) {
		if n.Kind != yaml.ScalarNode {
			r.add(at, "it has to be one value")
		} else if err := target.UnmarshalText([]byte(n.Value)); err != nil {
			r.add(at, "%v", err)
		}
	}
}

func (r *reader) truth(target *bool) func(*yaml.Node, place) {
	return func(n *yaml.Node, at place) {
		if n.Tag != "!!bool" || n.Decode(target) != nil {
			r.add(at, "%q is neither true nor false", n.Value)
		}
	}
}

func (r *reader) plan(n *yaml.Node, path string) declaredPlan {
	p := declaredPlan{place: place{n.Line, path}}
	r.object(n, path, []string{"name"}, map[string]func(*yaml.Node, place){
		"name": r.text(&p.name), "minute": r.text((*limit)(&p.limits.Minute)), "day": r.text((*limit)(&p.limits.Day)),
	})
	return p
}

func (r *reader) tenant(n *yaml.Node, path string) declaredTenant {
	t := declaredTenant{place: place{n.Line, path}}
	r.object(n, path, []string{"name", "plan"}, map[string]func(*yaml.Node, place){
		"name": r.text(&t.name), "plan": r.text(&t.plan), "suspended": r.truth(&t.suspended),
		"minute": r.text((*limit)(&t.override.Minute)), "day": r.text((*limit)(&t.override.Day)),
		"keys": func(n *yaml.Node, at place) { t.hasKeys, t.keys = true, each(r, n, at, r.key) },
	})
	return t
}

func (r *reader) key(n *yaml.Node, path string) declaredKey {
	k := declaredKey{place: place{n.Line, path}}
	r.object(n, path, []string{"id", "name", "scopes"}, map[string]func(*yaml.Node, place){
		"id":          r.text((*keyArgument)(&k.id)),
		"name":        r.text(&k.name),
		"environment": r.text(&k.environment),
		"scopes": func(n *yaml.Node, at place) {
			for _, s := range each(r, n, at, element[scope](r)) {
				k.scopes |= apikey.Scopes(s)
			}
			if k.scopes == 0 {
				r.add(at, "a key needs a scope")
			}
		},
		"allow": func(n *yaml.Node, at place) { k.allow = prefixes(each(r, n, at, element[block](r))) },
		"expires": func(n *yaml.Node, at place) {
			for _, layout := range []string{time.RFC3339, time.DateOnly} {
				if t, err := time.Parse(layout, n.Value); err == nil {
					k.expiresAt = instant.Of(t)
					return
				}
			}
			r.add(at, "%q is not a time: use 2026-12-31 or 2026-12-31T18:00:00Z", n.Value)
		},
	})
	return k
}

// element reads an element of a list in the same way as text reads a value.
func element[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](r *reader) func(*yaml.Node, string) T {
	return func(n *yaml.Node, path string) (value T) {
		r.text(P(&value))(n, place{n.Line, path})
		return value
	}
}

// unique adds a problem for everything that the document declares twice.
func (r *reader) unique(d document) {
	seen := map[string]int{}
	once := func(at place, kind, name string) {
		if first := seen[kind+name]; first != 0 && name != "" {
			r.add(at, "%s %q is already declared in line %d", kind, name, first)
			return
		}
		seen[kind+name] = at.line
	}
	for _, p := range d.plans {
		once(p.place, "plan", string(p.name))
	}
	for _, t := range d.tenants {
		once(t.place, "tenant", string(t.name))
		for _, k := range t.keys {
			if !k.id.IsZero() {
				once(k.place, "key", k.id.String())
			}
		}
	}
}
