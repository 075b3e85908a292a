package operate

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"
)

// ViewsOf returns the views of rows. Without rows, it is empty and not nil: in JSON, a list.
func ViewsOf[T, V any](rows []T, view func(T) V) []V {
	views := make([]V, len(rows))
	for i, row := range rows {
		views[i] = view(row)
	}
	return views
}

// WriteJSON writes a list of views, or one view, as JSON for programs and people.
func WriteJSON(w io.Writer, data any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(data)
}

// WriteRows writes a list of views row by row, in the form of WriteJSON or, with the format csv, of
// WriteCSV. It keeps none of them.
func WriteRows[V any](w io.Writer, format string, rows iter.Seq2[V, error]) error {
	if format == "csv" {
		out, kind := csvWriter(w), reflect.TypeFor[V]()
		err := out.Write(columnsOf("", kind))
		for row, failed := range rows {
			if err = cmp.Or(err, failed); err != nil {
				return err
			}
			err = out.Write(cellsOf(reflect.ValueOf(row), kind))
		}
		out.Flush()
		return cmp.Or(err, out.Error())
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("  ", "  ")
	before, end := "[\n  ", "[]\n"
	for row, err := range rows {
		if err != nil {
			return err
		}
		text.Reset()
		text.WriteString(before)
		if err := encoder.Encode(row); err != nil {
			return err
		}
		if _, err := w.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil {
			return err
		}
		before, end = ",\n  ", "\n]\n"
	}
	_, err := io.WriteString(w, end)
	return err
}

// WriteCSV writes a list of views, or one view, as RFC 4180 with a header line. The columns are the
// members of the JSON output. Members of inner objects are named like limits.day, and lists are
// separated by spaces. Times are RFC 3339 in UTC. Text that a spreadsheet would run as a formula
// begins with an apostrophe.
func WriteCSV(w io.Writer, data any) error {
	rows := reflect.ValueOf(data)
	if rows.Kind() != reflect.Slice {
		rows = reflect.Append(reflect.MakeSlice(reflect.SliceOf(rows.Type()), 0, 1), rows)
	}
	out, kind := csvWriter(w), rows.Type().Elem()
	err := out.Write(columnsOf("", kind))
	for i := range rows.Len() {
		err = cmp.Or(err, out.Write(cellsOf(rows.Index(i), kind)))
	}
	out.Flush()
	return cmp.Or(err, out.Error())
}

func csvWriter(w io.Writer) *csv.Writer {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	return out
}

var rawJSON = reflect.TypeFor[json.RawMessage]()

// columnsOf names the columns of a type.
func columnsOf(prefix string, t reflect.Type) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return []string{strings.TrimSuffix(prefix, ".")}
	}
	var names []string
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			names = append(names, columnsOf(prefix, field.Type)...)
		case name != "" && name != "-":
			names = append(names, columnsOf(prefix+name+".", field.Type)...)
		}
	}
	return names
}

// cellsOf returns the cells of a value of type t, one for each of t's columns. An invalid value has
// empty cells.
func cellsOf(v reflect.Value, t reflect.Type) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		v = v.Elem() // of nil: invalid
	}
	if t.Kind() != reflect.Struct {
		return []string{cellOf(v)}
	}
	var cells []string
	for i := range t.NumField() {
		field := t.Field(i)
		if name := field.Tag.Get("json"); !field.Anonymous && (name == "" || name == "-") {
			continue
		}
		var inner reflect.Value
		if v.IsValid() {
			inner = v.Field(i)
		}
		cells = append(cells, cellsOf(inner, field.Type)...)
	}
	return cells
}

// cellOf returns a cell that a spreadsheet takes for text: names come from customers, and one like
// =HYPERLINK(…) would be run.
func cellOf(v reflect.Value) (text string) {
	switch {
	case !v.IsValid():
		return ""
	case v.CanInt() || v.CanFloat():
		return fmt.Sprint(v.Interface())
	case v.Type() == rawJSON:
		text = string(v.Bytes())
	case v.Kind() == reflect.Slice:
		texts := make([]string, v.Len())
		for i := range texts {
			texts[i] = fmt.Sprint(v.Index(i).Interface())
		}
		text = strings.Join(texts, " ")
	default:
		text = fmt.Sprint(v.Interface())
	}
	if text != "" && strings.Contains("=+-@\t\r", text[:1]) {
		return "'" + text
	}
	return text
}
