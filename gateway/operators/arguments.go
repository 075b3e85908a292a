package operators

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"petgate/shared/operate"
)

// values are the arguments of a call by name, as text: from the path, the query and the body.
type values map[string][]string

// fieldName is how the API writes an argument.
func fieldName(f operate.Flag) string { return string(f) }

// about describes an argument.
func (c *call) about(f operate.Argument) string {
	text := strings.TrimSuffix(f.Tag.Get("help"), " Repeatable.")
	if f.Type == reflect.TypeFor[operate.LimitChange]() {
		text += " 0 removes the limit."
	}
	if f.Default != "" {
		text += " Default: " + f.Default + "."
	}
	return text
}

// hasBody reports whether the arguments of a call are in its body: a JSON object.
func (c *call) hasBody() bool {
	return !c.declares && (c.method == http.MethodPost || c.method == http.MethodPut || c.method == http.MethodPatch)
}

// isOnce reports whether a request with an Idempotency-Key is carried out once. A document needs
// none: applied again, it changes nothing.
func (c *call) isOnce() bool { return c.changes && !c.declares && c.method == http.MethodPost }

// The limits of a body.
const (
	bodyBytesMax     = 64 << 10
	documentBytesMax = 1 << 20
)

// readAll reads the body of a request.
func (c *call) readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := int64(bodyBytesMax)
	if c.declares {
		limit = documentBytesMax
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		text := "the body cannot be read: " + err.Error()
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			text += fmt.Sprintf(": use at most %d bytes", limit)
		}
		return nil, failure{status: http.StatusBadRequest, code: "bad_request", message: text}
	}
	return body, nil
}

// inPath reports whether an argument is a part of the path.
func (c *call) inPath(name string) bool { return strings.Contains(c.path, "{"+name+"}") }

// common are arguments that many calls have, in the query.
type common struct {
	Wait    operate.Delay `json:"wait" help:"How long to wait until all gateways have applied the change: 0 to 60s (default: 5s). If some have not by then, the answer is 202 and names them."`
	Confirm bool          `json:"confirm" help:"Make the change although it takes something away."`
	After   string        `json:"after" help:"Where the page begins: from the header Link of the page before."`
	Limit   rows          `json:"limit" default:"100" help:"Rows of a page: 1 to 1000."`
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

// common lists the common arguments of a call.
func (c *call) common() (all []operate.Argument) {
	for _, a := range operate.ArgumentsOf(reflect.TypeFor[common]()) {
		has := c.pages
		switch a.Name {
		case "wait":
			has = c.changes
		case "confirm":
			has = c.asks
		}
		if has {
			all = append(all, a)
		}
	}
	return all
}

// read reads the arguments of a call. Its error names everything that is wrong.
func (v *visit) read(r *http.Request, c *call, body []byte, into reflect.Value) error {
	given, shared, bad := values(r.URL.Query()), values{}, []mistake(nil)
	for _, f := range c.common() {
		if texts, isGiven := given[f.Name]; isGiven {
			shared[f.Name] = texts
			delete(given, f.Name)
		}
	}
	if c.hasBody() {
		for name := range given {
			bad = append(bad, mistake{name, "this call has no such parameter in its query"})
		}
		given, bad = readBody(body, bad)
	}
	names := []string{}
	for _, f := range operate.ArgumentsOf(c.arguments) {
		names = append(names, f.Name)
		if c.inPath(f.Name) {
			given[f.Name] = []string{r.PathValue(f.Name)}
		}
	}
	for _, texts := range []values{given, shared} {
		for name, all := range texts {
			isToken := name == tokenField && c.hasBody()
			if slices.ContainsFunc(all, func(text string) bool { return !isToken && operate.HasToken(text) }) {
				bad = append(
					bad,
					mistake{
						name,
						"it has a token, which is not repeated here: use an ID. If the token was in the address " +
							"of a call, replace its key",
					},
				)
				delete(texts, name)
			}
		}
	}
	for name := range given {
		if !slices.Contains(names, name) {
			bad = append(
				bad,
				mistake{
					name, "there is no such field: the fields are " + strings.Join(names, ", "),
				},
			)
		}
	}
	with := common{}
	wrong := operate.ReadArguments(into, given)
	wrong = append(wrong, operate.ReadArguments(reflect.ValueOf(&with).Elem(), shared)...)
	for _, wrong := range wrong {
		bad = append(bad, mistake{wrong.Name, wrong.Text.With(fieldName)})
	}
	if with.Wait.Length > waitMax {
		bad = append(bad, mistake{"wait", "it is too long: use 0 to 60s"})
	}
	v.wait, v.confirmed, v.after, v.limit = with.Wait, with.Confirm, with.After, int(with.Limit)
	return invalid(bad...)
}

// readBody reads a JSON object whose members are texts, numbers, truths or lists of them. An empty
// body is an empty object.
func readBody(body []byte, bad []mistake) (values, []mistake) {
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
	if err == nil && !utf8.Valid(body) {
		err = fmt.Errorf("it is not UTF-8")
	}
	if err != nil {
		return given, append(bad, mistake{"", fmt.Sprintf("the body is not one JSON object: %v", err)})
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
				bad = append(bad, mistake{name, "use a text, a number, true or false, or a list of texts"})
			}
		}
		if member != nil {
			given[name] = texts
		}
	}
	return given, bad
}
