package console

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/instant"
	"petgate/shared/operate"
)

// pageRows is how many rows a page of a list has.
const pageRows = 50

// list is what template "list" shows: one page of a list as a table.
type list struct {
	Caption string // names the table
	ID      string // of the element with the rows; may be empty
	Columns []column
	Rows    [][]cell // the first cell of a row names it
	None    string   // the sentence for a list without rows
	Cure    string   // what to do then; may be empty
	Command string   // a command that does it; may be empty

	First, Next string // addresses of other pages; empty: there are none
}

// IsMany reports whether the columns need a wide window.
func (l list) IsMany() bool { return len(l.Columns) > 6 }

// column is a column of a list.
type column struct{ Title, Class string }

// The classes of columns, for the stylesheet. Columns without a class have short texts.
const (
	numbers   = "number"
	sentences = "text" // only these are broken into lines
)

// titled returns columns of short texts.
func titled(titles ...string) []column {
	return operate.ViewsOf(titles, func(title string) column { return column{Title: title} })
}

// ClassOf returns the class of one of the column's cells. A narrow page leaves out those that have
// nothing to say.
func (c column) ClassOf(one cell) string {
	return strings.TrimSpace(operate.Either(one.Text == "-", "none ", "") + c.Class)
}

// cell is one cell of a row.
type cell struct {
	Text   string
	Link   string // may be empty
	Status string // well, unwell or ended, for the stylesheet; empty: the text is no status
	Time   string // the exact instant, if the text is a time
	Bar    int64  // the length of a bar beside a number, in per cent; 0: none
	Level  string // of the bar: near or full, for the stylesheet; may be empty

	Post  string // the text is a button that sends a form to this path; empty: it is not
	Label string // of the button, for screen readers
}

// word is a part of a cell's text. A whole one, such as an instant or an address, is not broken at
// its hyphens.
type word struct {
	Text    string
	IsWhole bool
}

// Words returns the parts of the text.
func (c cell) Words() (words []word) {
	from := 0
	for _, at := range hyphened.FindAllStringIndex(c.Text, -1) {
		words = append(words, word{c.Text[from:at[0]], false}, word{c.Text[at[0]:at[1]], true})
		from = at[1]
	}
	return append(words, word{c.Text[from:], false})
}

// hyphened finds short words with hyphens.
var hyphened = regexp.MustCompile(`\b[\w:.]{1,20}(-[\w:.]{1,20}){1,3}\b`)

// status is a cell that says whether something is well, or has ended.
func status(text string, isWell bool) cell {
	of := operate.Either(isWell, "well", "unwell")
	if slices.Contains(endedStates, text) {
		of = "ended"
	}
	return cell{Text: text, Status: of}
}

// endedStates are the states of keys that have ended.
var endedStates = []string{"revoked", "expired", "rotated"}

// number is a cell with a number.
func number(n int64) cell { return cell{Text: humanize.Comma(n)} }

// bar is a cell with a number and its part of the largest one.
func bar(n, most int64) cell {
	return cell{Text: humanize.Comma(n), Bar: partOf(n, most)}
}

// partOf returns a part in per cent for a bar: at least 1 if there is anything to see, at most 100.
func partOf(n, most int64) int64 {
	if n <= 0 || most <= 0 {
		return 0
	}
	return max(1, min(n*100/most, 100))
}

// when is a cell with an instant as people say it: 3 min ago, in 9 days. never is its text for the
// zero instant.
func (v *visit) when(at instant.Millis, never string) cell {
	if at == 0 {
		return cell{Text: never}
	}
	c := cell{Time: at.String()}
	switch d := v.operator.Now().Sub(at); {
	case d >= 7*day || d <= -400*day:
		c.Text = at.Time().Format("2 Jan 2006")
	case d > -time.Second && d < time.Second:
		c.Text = "now"
	case d > 0:
		c.Text = operate.Span(d) + " ago"
	default:
		c.Text = "in " + operate.Until(-d)
	}
	return c
}

// whenText is like when, for an instant that a view has as text.
func (v *visit) whenText(text, never string) cell {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return v.when(instant.Of(at), never)
	}
	return v.when(0, never)
}

// quoted marks a text that a person has written: without quotes, it could look like a part of the
// page. Empty: a dash.
func quoted(text string) cell {
	if text == "" {
		return cell{Text: "-"}
	}
	return cell{Text: "“" + text + "”"}
}

// find reads the page of a list that a request is about, and its arguments.
func find[V any, A operate.Finder[V]](r *http.Request, v *visit, arguments A) (A, operate.Page[V], error) {
	of, err := readArguments(r, r.URL.Query(), arguments)
	if err != nil {
		return of, operate.Page[V]{}, err
	}
	page, err := of.Page(r.Context(), v.operator, r.URL.Query().Get("after"), pageRows)
	return of, page, err
}

// address returns the address of a request with another value of a member of its query. An empty
// value removes the member.
func address(r *http.Request, member, value string) string {
	query := r.URL.Query()
	query.Del("done")
	if query.Del(member); value != "" {
		query.Set(member, value)
	}
	return (&url.URL{Path: r.URL.Path, RawQuery: query.Encode()}).String()
}

// paged adds the addresses of the other pages to a list. after is the query's member that begins
// the next page; empty: there is none.
func (l list) paged(r *http.Request, after string) list {
	if r.URL.Query().Get("after") != "" {
		l.First = address(r, "after", "")
	}
	if after != "" {
		l.Next = address(r, "after", after)
	}
	return l
}
