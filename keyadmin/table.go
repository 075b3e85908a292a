package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"petgate/shared/operate"
)

// table has rows under a head. Without a head, each row is a name and its value.
type table struct {
	head  []string
	rows  [][]string
	spare []string // columns that are left out on a narrow terminal, the least important first; never a status
	none  string   // what to say if a list has no rows
	bare  bool     // the head was written before, above other rows
	noIDs bool     // the column of IDs, the first one, was left out
}

// hardSpace is a space at which a cell is not broken.
const hardSpace = "\u00a0"

// gap separates two columns.
const gap = "  "

// write writes the table. style marks the head, or the names.
func (t table) write(w *bytes.Buffer, width int, style func(string) string) {
	lines := t.rows
	if t.head != nil {
		lines = append([][]string{t.head}, t.rows...)
	}
	widths := t.widths(width)
	for n, line := range lines {
		if n == 0 && t.bare && t.head != nil {
			continue
		}
		cells, height := make([][]string, len(line)), 0
		for i, cell := range line {
			cells[i] = wrap(operate.Printable(cell), widths[i])
			height = max(height, len(cells[i]))
		}
		for row := range height {
			var text strings.Builder
			for i, cell := range cells {
				part := ""
				if row < len(cell) {
					part = strings.ReplaceAll(cell[row], hardSpace, " ")
				}
				filler := strings.Repeat(" ", max(widths[i]-textWidth(part), 0)) + gap
				if part != "" && (t.head != nil && n == 0 || t.head == nil && i == 0) {
					part = style(part)
				}
				text.WriteString(part + filler)
			}
			w.WriteString(strings.TrimRight(text.String(), " "))
			w.WriteByte('\n')
		}
	}
}

// fit returns the table as it fits a width, and the columns that it leaves out. A width of 0 has no limit. Times become ages;
// then cells are broken at spaces; then columns are left out; then cells are cut. IDs, which are in the first column, are never cut.
func (t table) fit(width int, now time.Time) (fitting table, omitted []string) {
	if width == 0 || total(t.natural()) <= width {
		return t, nil
	}
	if t.head != nil {
		t = t.mapped(func(_ int, cell string) string { return aged(cell, now) })
		for _, head := range t.spare {
			if total(t.legible()) <= width {
				break
			}
			omitted = append(omitted, head)
			t = t.without(head)
		}
	}
	return t.cut(width), omitted
}

func total(widths []int) int {
	sum := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// natural returns the widths of the columns if no cell is broken.
func (t table) natural() []int { return t.measure(textWidth) }

// least returns the widths of the columns if all cells are broken at each space. Names at the beginning of rows are not broken.
func (t table) least() []int {
	least := t.measure(func(cell string) int {
		longest := 0
		for word := range strings.SplitSeq(cell, " ") {
			longest = max(longest, textWidth(word))
		}
		return longest
	})
	if t.head == nil && len(least) > 0 {
		least[0] = t.natural()[0]
	}
	return least
}

// legibleWidth is the width below which a column is narrowed only when no other column can be left out.
const legibleWidth = 14

func (t table) legible() []int {
	widths, natural := t.least(), t.natural()
	for i := range widths {
		widths[i] = max(widths[i], min(natural[i], legibleWidth))
	}
	return widths
}

func (t table) measure(size func(string) int) []int {
	var widths []int
	for _, line := range append([][]string{t.head}, t.rows...) {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], size(cell))
		}
	}
	return widths
}

// widths shares a width among the columns: it always narrows the widest one that can still be narrowed.
func (t table) widths(width int) []int {
	if width == 0 {
		return t.natural()
	}
	return narrowed(t.natural(), t.least(), width)
}

// narrowed makes the widest column narrower until the columns fit a width, but none narrower than least says.
func narrowed(widths, least []int, width int) []int {
	widths = slices.Clone(widths)
	for total(widths) > width {
		widest := -1
		for i := range widths {
			if widths[i] > least[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// wrap breaks text at spaces into lines of at most the given number of characters. A longer word is a line of its own.
func wrap(text string, width int) []string {
	if textWidth(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		if line != "" && textWidth(line)+1+textWidth(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// mapped returns the table with other cells.
func (t table) mapped(f func(column int, cell string) string) table {
	rows := make([][]string, len(t.rows))
	for i, row := range t.rows {
		for column, cell := range row {
			rows[i] = append(rows[i], f(column, cell))
		}
	}
	t.rows = rows
	return t
}

var times = regexp.MustCompile(`\b(until )?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// aged writes the times in a text as ages: "in 3 days", "for 3 days" instead of a time after "until", "5 min ago".
func aged(text string, now time.Time) string {
	return times.ReplaceAllStringFunc(text, func(at string) string {
		at, isEnd := strings.CutPrefix(at, "until ")
		t, err := time.Parse(time.RFC3339, at)
		switch {
		case err != nil:
			return at
		case t.After(now):
			at = operate.Either(isEnd, "for ", "in ") + operate.Until(t.Sub(now))
		default:
			at = operate.Either(isEnd, "until ", "") + operate.Span(now.Sub(t)) + " ago"
		}
		return strings.ReplaceAll(at, " ", hardSpace)
	})
}

func (t table) without(head string) table {
	at := slices.Index(t.head, head)
	if at < 0 {
		panic("bug: there is no column " + head)
	}
	drop := func(line []string) []string { return slices.Delete(slices.Clone(line), at, at+1) }
	rows := make([][]string, len(t.rows))
	for i, row := range t.rows {
		rows[i] = drop(row)
	}
	t.head, t.rows, t.noIDs = drop(t.head), rows, t.noIDs || at == 0
	return t
}

// cut shortens the longest words, except in a first column of IDs, until the table fits.
func (t table) cut(width int) table {
	least := t.least()
	shortest := slices.Repeat([]int{4}, len(least))
	if len(least) > 0 && !t.noIDs {
		shortest[0] = least[0]
	}
	longest := narrowed(least, shortest, width)
	return t.mapped(func(column int, cell string) string {
		if longest[column] == least[column] {
			return cell
		}
		words := strings.Split(cell, " ")
		for i := range words {
			words[i] = shortened(words[i], longest[column])
		}
		return strings.Join(words, " ")
	})
}

// textWidth is how many columns of a terminal a text takes: characters of East Asian scripts take two.
func textWidth(text string) int { return ansi.StringWidth(text) }

// shortened cuts a text to a width.
func shortened(text string, to int) string { return ansi.Truncate(text, to, "…") }
