package main

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"petgate/shared/core/apikey"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// documentHead begins an exported document.
const documentHead = `# Plans, tenants and keys of Petgate, as written by: keyadmin export
# What is named here is declared as a whole: a member that is left out has its default. A tenant without the member keys
# keeps its keys. Tokens are not part of it.
`

// What the document has of each record, in the order of the file. It is written from these types
// and read into them.
type (
	document struct {
		Version documentVersion  `yaml:"version" required:""`
		Plans   []documentPlan   `yaml:"plans"`
		Tenants []documentTenant `yaml:"tenants,omitempty"`
	}
	documentPlan struct {
		At                place            `yaml:"-"`
		Name              operate.PlanName `yaml:"name" required:""`
		operate.NewLimits `yaml:",inline"`
		TestMinute        operate.Limit `yaml:"testMinute,omitempty"`
	}
	documentTenant struct {
		At                place              `yaml:"-"`
		Name              operate.TenantName `yaml:"name" required:""`
		Plan              operate.PlanName   `yaml:"plan" required:""`
		operate.NewLimits `yaml:",inline"`
		MonthStarts       operate.MonthStarts `yaml:"monthStarts,omitempty"`
		Suspended         bool                `yaml:"suspended,omitempty"`
		Keys              []documentKey       `yaml:"keys,omitempty"` // nil: the file does not name the tenant's keys
	}
	documentKey struct {
		At          place           `yaml:"-"`
		ID          operate.KeyID   `yaml:"id" required:""`
		Name        operate.Name    `yaml:"name" required:""`
		Environment keyEnvironment  `yaml:"environment"`
		Scopes      []operate.Scope `yaml:"scopes,flow" required:""`
		Allow       []operate.Block `yaml:"allow,omitempty,flow"`
		Expires     expiry          `yaml:"expires,omitempty"`
		Minute      operate.Limit   `yaml:"minute,omitempty"`
		Day         operate.Limit   `yaml:"day,omitempty"`
		Disabled    bool            `yaml:"disabled,omitempty"`
	}
)

// place is where something stands in a file.
type place struct {
	line   int
	member string // tenants[2].plan
}

// documentVersion is the format of the document. There is one so far.
type documentVersion int

const version documentVersion = 1

func (v *documentVersion) UnmarshalText(text []byte) error {
	if *v = version; string(text) != "1" {
		return fmt.Errorf("%q is not a version of the format: this keyadmin knows version 1", text)
	}
	return nil
}

// keyEnvironment is the environment of a key. The zero value is live.
type keyEnvironment struct{ apikey.Environment }

func (e keyEnvironment) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// expiry is a UTC date or an instant in seconds; 0: never.
type expiry instant.Millis

func (e expiry) MarshalText() ([]byte, error) { return []byte(instant.Millis(e).String()), nil }

func (e *expiry) UnmarshalText(text []byte) error {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, string(text)); err == nil {
			*e = expiry(instant.Of(t))
			return nil
		}
	}
	return fmt.Errorf("%q is not a time: use 2026-12-31 or 2026-12-31T18:00:00Z", text)
}

// documentWriter writes a state as YAML, some rows at a time. The same state always gives the same
// bytes, on every database.
type documentWriter struct {
	to      io.Writer
	now     instant.Millis
	tenants []documentTenant // not written yet
	size    int              // how many tenants and keys are not written yet
	any     bool             // whether a tenant was written
}

// documentRows is how many tenants and keys are written at once; a tenant is always written with
// all its keys.
const documentRows = 1000

func (d *documentWriter) plans(plans []keystore.Plan) error {
	head := document{Version: version, Plans: []documentPlan{}}
	for _, p := range plans {
		head.Plans = append(head.Plans, documentPlan{
			Name: operate.PlanName(
				p.Name,
			), NewLimits: operate.NewLimitsOf(p.Limits), TestMinute: operate.Limit(p.Test.Minute),
		})
	}
	// The databases sort the names of plans differently.
	slices.SortFunc(head.Plans, func(a, b documentPlan) int { return cmp.Compare(a.Name, b.Name) })
	if _, err := io.WriteString(d.to, documentHead); err != nil {
		return err
	}
	return d.write("", head)
}

func (d *documentWriter) tenant(t keystore.Tenant) (err error) {
	if d.size >= documentRows { // before the tenant: all its keys are written with it
		err = d.flush()
	}
	d.size++
	d.tenants = append(d.tenants, documentTenant{
		Name: operate.TenantName(t.Name), Plan: operate.PlanName(t.Plan), NewLimits: operate.NewLimitsOf(t.Override),
		MonthStarts: operate.MonthStarts(t.MonthStarts), Suspended: t.Suspended,
	})
	return err
}

func (d *documentWriter) key(k keystore.Key) error {
	if !k.Enabled().InUse(d.now) {
		return nil
	}
	one := documentKey{
		ID: operate.KeyID{
			Key: k.ID,
		}, Name: operate.Name(k.Name), Environment: keyEnvironment{k.Environment}, Expires: expiry(k.ExpiresAt),
		Minute: operate.Limit(k.Limits.Minute), Day: operate.Limit(k.Limits.Day), Disabled: k.DisabledAt() != 0,
		Scopes: operate.ViewsOf(k.Scopes.Names(), func(s string) operate.Scope { return operate.Scope(s) }),
		Allow:  operate.ViewsOf(k.Allow, func(b netip.Prefix) operate.Block { return operate.Block{Prefix: b} }),
	}
	of := &d.tenants[len(d.tenants)-1]
	of.Keys = append(of.Keys, one)
	d.size++
	return nil
}

// flush writes the tenants that are not written yet.
func (d *documentWriter) flush() (err error) {
	if len(d.tenants) == 0 {
		return nil
	}
	if !d.any {
		d.any = true
		_, err = io.WriteString(d.to, "tenants:\n")
	}
	err = cmp.Or(err, d.write("  ", d.tenants))
	d.tenants, d.size = d.tenants[:0], 0
	return err
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
	return usageErrorf("the file cannot be applied. Nothing was changed.\n  %s%s",
		strings.Join(p.list[:min(len(p.list), problemsMax)], "\n  "), more)
}

// readDocument reads a file with one YAML document. Its error names every problem with its line and
// member.
func readDocument(file string, text []byte) (d document, err error) {
	var root, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err = decoder.Decode(&root); err == nil {
		err = decoder.Decode(&second)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if !strings.HasPrefix(text, "line ") { // the library leaves out the first line
			text = "line 1: " + text
		}
		return d, usageErrorf("%s is not YAML: %s", file, text)
	}
	if len(root.Content) == 0 {
		return d, usageErrorf("%s is empty: it needs a version", file)
	}
	r := reader{problems{file: file}}
	if len(second.Content) > 0 {
		r.add(place{second.Line, "document"},
			"a file has one document, and a second one begins here: write it to another file")
	}
	r.value(root.Content[0], place{root.Content[0].Line, "document"}, reflect.ValueOf(&d).Elem())
	r.check(d)
	return d, r.err()
}

// reader reads the nodes of a YAML document. The library's own decoder does not name members in its
// errors.
type reader struct{ problems }

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
		to.Set(reflect.MakeSlice(to.Type(), len(n.Content), len(n.Content)))
		if n.Kind != yaml.SequenceNode && n.Tag != "!!null" {
			r.add(at, "it has to be a list")
			return
		}
		for i, element := range n.Content {
			r.value(element, place{element.Line, fmt.Sprintf("%s[%d]", at.member, i)}, to.Index(i))
		}
	default:
		r.mapping(n, at, to)
	}
}

// mapping reads the members of a struct. Each may be given once.
func (r *reader) mapping(n *yaml.Node, at place, to reflect.Value) {
	members := map[string]reflect.Value{}
	var required []string
	for _, f := range reflect.VisibleFields(to.Type()) {
		switch member, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); member {
		case "": // a struct of several members, which follow
		case "-":
			to.FieldByIndex(f.Index).Set(reflect.ValueOf(at))
		default:
			members[member] = to.FieldByIndex(f.Index)
			if _, isRequired := f.Tag.Lookup("required"); isRequired {
				required = append(required, member)
			}
		}
	}
	if n.Kind != yaml.MappingNode {
		r.add(at, "it has to be a mapping: %s", strings.Join(sortedKeys(members), ", "))
		return
	}
	prefix := at.member + "."
	if at.member == "document" {
		prefix = ""
	}
	given := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		member := n.Content[i].Value
		here := place{n.Content[i].Line, prefix + member}
		switch field, exists := members[member]; {
		case !exists:
			r.add(here, "there is no such member: use %s", strings.Join(sortedKeys(members), ", "))
		case given[member]:
			r.add(here, "it is given twice")
		default:
			r.value(n.Content[i+1], here, field)
		}
		given[member] = true
	}
	for _, member := range required {
		if !given[member] {
			r.add(at, "the member %q is missing%s", member, missingWays[member])
		}
	}
}

// missingWays say more about members that are missing. Only keys have IDs.
var missingWays = map[string]string{
	"id": ": only keys that exist can be named here. `keyadmin key create` creates one and shows its ID",
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// check adds a problem for everything that the document declares twice.
func (r *reader) check(d document) {
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
