package console

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"petgate/shared/operate"
)

const (
	pageRows = 50   // of a page for people
	dataRows = 5000 // of a page for programs
)

// list is what template "list" shows: one page of a list as a table.
type list struct {
	Caption string // names the table
	Columns []column
	Rows    [][]cell // the first cell of a row names it
	None    string   // the sentence for a list without rows
	Cure    string   // what to do then; may be empty
	Command string   // a command that does it; may be empty

	First, Next string // addresses of other pages; empty: there are none
	JSON, CSV   string // addresses of the same rows for programs; empty: there are none
}

// column is the title of a column. That of a column with numbers begins with #.
type column string

// Title returns the title for people.
func (c column) Title() string { return strings.TrimPrefix(string(c), "#") }

// IsNumber reports whether the cells are numbers.
func (c column) IsNumber() bool { return strings.HasPrefix(string(c), "#") }

// cell is one cell of a row.
type cell struct {
	Text   string
	Link   string // may be empty
	Status string // well or unwell, for the stylesheet; empty: the text is no status

	Post  string // the text is a button that sends a form to this path; empty: it is not
	Label string // of the button, for screen readers
}

// status is a cell that says whether something is well.
func status(text string, isWell bool) cell {
	return cell{Text: text, Status: operate.Either(isWell, "well", "unwell")}
}

// page is one page of rows, with the views that programs get.
type page[T, V any] struct {
	rows  []T
	views []V
	next  string // the value of the query's member after for the next page; empty: there is none
}

// readPage reads the page that a request is about. find returns at most the given number of rows. after names the row after which the
// next page begins.
func readPage[T, V any](r *http.Request, find func(most int) ([]T, error), after func(T) string, view func(T) V) (p page[T, V], err error) {
	n := pageRows
	if r.URL.Query().Get("format") != "" {
		n = dataRows
	}
	if p.rows, err = find(n + 1); err != nil {
		return p, err
	}
	if len(p.rows) > n {
		p.rows = p.rows[:n]
		p.next = after(p.rows[n-1])
	}
	p.views = viewsOf(p.rows, view)
	return p, nil
}

// viewsOf returns the views of rows. Without rows, it is empty and not nil: in JSON, a list.
func viewsOf[T, V any](rows []T, view func(T) V) []V {
	views := make([]V, len(rows))
	for i, row := range rows {
		views[i] = view(row)
	}
	return views
}

// address returns the address of a request with other members in its query. An empty value removes a member.
func address(r *http.Request, members ...string) string {
	query := r.URL.Query()
	query.Del("done")
	for i := 0; i < len(members); i += 2 {
		if members[i+1] == "" {
			query.Del(members[i])
			continue
		}
		query.Set(members[i], members[i+1])
	}
	return (&url.URL{Path: r.URL.Path, RawQuery: query.Encode()}).String()
}

// paged adds the addresses of the other pages to a list. after is the query's member that begins the next page; empty: there is none.
func (l list) paged(r *http.Request, after string) list {
	if r.URL.Query().Get("after") != "" {
		l.First = address(r, "after", "")
	}
	if after != "" {
		l.Next = address(r, "after", after)
	}
	l.JSON, l.CSV = address(r, "format", "json"), address(r, "format", "csv")
	return l
}

// sendData answers a request that has ?format=json or ?format=csv, with what keyadmin -o json or -o csv prints. It reports whether it has
// answered, or has failed to. If there are more rows, next is the value of the query's member after for them, and the header Link has their address (RFC 8288).
func (c *Console) sendData(w http.ResponseWriter, r *http.Request, v *visit, name string, views any, next string) (isData bool, err error) {
	format := r.URL.Query().Get("format")
	var body bytes.Buffer
	var contentType string
	switch format {
	case "":
		return false, nil
	case "json":
		contentType, err = "application/json", operate.WriteJSON(&body, views)
	case "csv":
		contentType, err = "text/csv; charset=utf-8", operate.WriteCSV(&body, views, false)
	default:
		err = c.say(w, v, http.StatusBadRequest, "There is no such format", fmt.Sprintf("%q is not a format: use json or csv.", format))
		return true, err
	}
	if err != nil {
		return true, err
	}
	if next != "" {
		w.Header().Set("Link", "<"+address(r, "after", next)+`>; rel="next"`)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.%s"`, name, format))
	_, _ = body.WriteTo(w)
	return true, nil
}
