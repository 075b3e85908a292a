package operators

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"petgate/shared/operate"
)

// values are the arguments of a call by name, as text: from the path, the query and the body.
type values map[string][]string

// field is one argument of a call.
type field struct {
	reflect.StructField
	name       string
	isRequired bool
}

// fieldsOf lists the arguments of a type, also those of embedded structs.
func fieldsOf(t reflect.Type) (fields []field) {
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); name != "" {
			_, isRequired := f.Tag.Lookup("required")
			fields = append(fields, field{f, name, isRequired})
		}
	}
	return fields
}

// flags are the arguments that a text of keyadmin names, and its commands.
var flags, capital = regexp.MustCompile("`[^`]*`|--[a-z-]+"), regexp.MustCompile("[A-Z]")

// inFields writes a text of keyadmin with the fields of the call: noExpires in place of --no-expires. Commands stay.
func (c *call) inFields(text string) string {
	return flags.ReplaceAllStringFunc(text, func(flag string) string {
		for _, f := range fieldsOf(c.arguments) {
			dashed := capital.ReplaceAllStringFunc(f.name, func(letter string) string { return "-" + strings.ToLower(letter) })
			if flag == "--"+cmp.Or(f.Tag.Get("name"), dashed) {
				return f.name
			}
		}
		return flag
	})
}

// about describes an argument.
func (c *call) about(f field) string {
	text := strings.Replace(strings.TrimSuffix(f.Tag.Get("help"), " Repeatable."), "; none", "; 0", 1)
	if value := f.Tag.Get("default"); value != "" {
		text += " Default: " + value + "."
	}
	return c.inFields(text)
}

// hasBody reports whether the arguments of a call are in its body: a JSON object.
func (c *call) hasBody() bool {
	return c.method == http.MethodPost || c.method == http.MethodPut || c.method == http.MethodPatch
}

// inPath reports whether an argument is a part of the path.
func (c *call) inPath(name string) bool { return strings.Contains(c.path, "{"+name+"}") }

// common are arguments that many calls have, in the query.
type common struct {
	Wait    operate.Patience `json:"wait" help:"How long to wait until all gateways have applied the change: 0 to 60s (default: 5s). If some have not by then, the answer is 202 and names them."`
	Confirm bool             `json:"confirm" help:"Make the change although it takes something away."`
	After   string           `json:"after" help:"Where the page begins: from the header Link of the page before."`
	Limit   rows             `json:"limit" default:"100" help:"Rows of a page: 1 to 1000."`
}

// rows is how many rows are asked for.
type rows int

// UnmarshalText reads a number of rows.
func (n *rows) UnmarshalText(text []byte) error {
	count, err := strconv.Atoi(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a whole number", text)
	case count < 1 || count > rowsMax:
		return fmt.Errorf("%d is out of range: use 1 to %d", count, rowsMax)
	}
	*n = rows(count)
	return nil
}

// has reports whether a call has a common argument.
func (c *call) has(name string) bool {
	switch name {
	case "wait":
		return c.changes
	case "confirm":
		return c.asks
	}
	return c.pages
}

// problem is what is wrong with an argument.
type problem struct{ field, text string }

// read reads the arguments of a call. Its error names everything that is wrong.
func (v *visit) read(r *http.Request, c *call, body []byte, into reflect.Value) error {
	given, shared, fields, bad := values(r.URL.Query()), values{}, fieldsOf(c.arguments), []problem(nil)
	for _, f := range fieldsOf(reflect.TypeFor[common]()) {
		if texts, isGiven := given[f.name]; isGiven && c.has(f.name) {
			shared[f.name] = texts
			delete(given, f.name)
		}
	}
	if c.hasBody() {
		for name := range given {
			bad = append(bad, problem{name, "this call has no such parameter in its query"})
		}
		given, bad = readBody(body, bad)
	}
	for _, f := range fields {
		if c.inPath(f.name) {
			given[f.name] = []string{r.PathValue(f.name)}
		}
	}
	for _, texts := range []values{given, shared} {
		for name, all := range texts {
			isToken := name == tokenField && c.hasBody()
			if slices.ContainsFunc(all, func(text string) bool { return !isToken && hasToken(text) }) {
				bad = append(bad, problem{name, "it has a token, which is not repeated here: use an ID. If the token was in the address of a call, replace its key"})
				delete(texts, name)
			}
		}
	}
	bad = append(bad, c.decode(fields, given, into)...)
	var with common
	bad = append(bad, c.decode(fieldsOf(reflect.TypeFor[common]()), shared, reflect.ValueOf(&with).Elem())...)
	if with.Wait.Max > waitMax {
		bad = append(bad, problem{"wait", "it is too long: use 0 to 60s"})
	}
	v.wait, v.confirmed, v.after, v.limit = with.Wait, with.Confirm, with.After, int(with.Limit)
	return invalid(bad)
}

// readBody reads a JSON object whose members are texts, numbers, truths or lists of them. An empty body is an empty object.
func readBody(body []byte, bad []problem) (values, []problem) {
	given, members := values{}, map[string]any{}
	if len(bytes.TrimSpace(body)) == 0 {
		return given, bad
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	err := decoder.Decode(&members)
	if _, end := decoder.Token(); err == nil && end != io.EOF {
		err = fmt.Errorf("something follows the object")
	}
	if err != nil || !utf8.Valid(body) {
		return given, append(bad, problem{"", fmt.Sprintf("the body is not one JSON object: %v", err)})
	}
	for name, member := range members {
		list, isList := member.([]any)
		if !isList && member != nil {
			list = []any{member}
		}
		texts := []string{}
		for _, one := range list {
			switch one.(type) {
			case string, json.Number, bool:
				texts = append(texts, fmt.Sprint(one))
			default:
				bad = append(bad, problem{name, "use a text, a number, true or false, or a list of texts"})
			}
		}
		if member != nil {
			given[name] = texts
		}
	}
	return given, bad
}

// decode sets fields to the values of their names, or to their defaults.
func (c *call) decode(fields []field, given values, into reflect.Value) (bad []problem) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
		texts, isGiven := given[f.name]
		if value := f.Tag.Get("default"); !isGiven && value != "" {
			texts, isGiven = []string{value}, true
		}
		if !isGiven {
			if f.isRequired {
				bad = append(bad, problem{f.name, "it is missing: " + c.about(f)})
			}
			continue
		}
		to := into.FieldByIndex(f.Index)
		if f.Type.Kind() == reflect.Slice {
			to.Set(reflect.MakeSlice(f.Type, len(texts), len(texts)))
			for i, text := range texts {
				if err := set(to.Index(i), text); err != nil {
					bad = append(bad, problem{f.name, c.inFields(err.Error())})
				}
			}
			continue
		}
		if len(texts) != 1 {
			bad = append(bad, problem{f.name, "give one value"})
		} else if err := set(to, texts[0]); err != nil {
			bad = append(bad, problem{f.name, c.inFields(err.Error())})
		}
	}
	for name := range given {
		if !slices.Contains(names, name) {
			bad = append(bad, problem{name, "there is no such field: the fields are " + strings.Join(names, ", ")})
		}
	}
	return bad
}

// set sets a value to what a text says.
func set(to reflect.Value, text string) error {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return fmt.Errorf("it has bytes that are not text")
	}
	if own, reads := to.Addr().Interface().(encoding.TextUnmarshaler); reads {
		return own.UnmarshalText([]byte(text))
	}
	if to.Kind() != reflect.Bool {
		to.SetString(text)
		return nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	to.SetBool(is)
	return nil
}
