package main

import (
	"bytes"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"petgate/shared/operate"
)

// table has rows under a head. Without a head, each row is a name and its value.
type table struct {
	head  []string
	rows  [][]string
	spare []string // columns that are left out on a narrow terminal, the least important first; never a status
	none  string   // what to say if a list has no rows
}

// gap separates two columns.
const gap = "  "

// write writes the table in a width; 0: as wide as it is. Cells are broken at spaces, and a word
// that is still too wide is cut.
func (t table) write(w *bytes.Buffer, width int) {
	lines := t.rows
	if t.head != nil {
		lines = append([][]string{t.head}, t.rows...)
	}
	widths := t.widths(width)
	for _, line := range lines {
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
					part = ansi.Truncate(cell[row], widths[i], "…")
				}
				text.WriteString(part + strings.Repeat(" ", max(widths[i]-textWidth(part), 0)) + gap)
			}
			w.WriteString(strings.TrimRight(text.String(), " "))
			w.WriteByte('\n')
		}
	}
}

// legibleWidth is the width below which a column is narrowed only when no other column can be left
// out.
const legibleWidth = 14

// fit leaves out columns until the others are legible in a width. It returns the rest of the table,
// and what it left out. 0: no limit.
func (t table) fit(width int) (fitting table, omitted []string) {
	if natural, _ := t.sizes(); width == 0 || t.head == nil || total(natural) <= width {
		return t, nil
	}
	for _, head := range t.spare {
		natural, least := t.sizes()
		for i := range least {
			least[i] = max(least[i], min(natural[i], legibleWidth))
		}
		if total(least) <= width {
			break
		}
		omitted = append(omitted, head)
		t = t.without(head)
	}
	return t, omitted
}

func total(widths []int) int {
	sum := len(gap) * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// sizes returns the widths of the columns if no cell is broken, and if all are broken at each
// space. Names at the beginning of rows are not broken.
func (t table) sizes() (natural, least []int) {
	for _, line := range append([][]string{t.head}, t.rows...) {
		for i, cell := range line {
			if i == len(natural) {
				natural, least = append(natural, 0), append(least, 0)
			}
			natural[i] = max(natural[i], textWidth(cell))
			for word := range strings.SplitSeq(cell, " ") {
				least[i] = max(least[i], textWidth(word))
			}
		}
	}
	if t.head == nil && len(least) > 0 {
		least[0] = natural[0]
	}
	return natural, least
}

// widths shares a width among the columns; 0: there is no limit. It cuts words only if it must, and
// never in the first column, which has IDs.
func (t table) widths(width int) []int {
	natural, least := t.sizes()
	if width == 0 {
		return natural
	}
	shortest := slices.Repeat([]int{4}, len(least))
	if len(least) > 0 {
		shortest[0] = least[0]
	}
	return narrowed(narrowed(natural, least, width), shortest, width)
}

// narrowed makes the widest column narrower until the columns fit a width, but none narrower than
// least says.
func narrowed(widths, least []int, width int) []int {
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

// wrap breaks text at spaces into lines of at most the given number of characters. A longer word is
// a line of its own.
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

func (t table) without(head string) table {
	at := slices.Index(t.head, head)
	if at < 0 {
		panic("bug: there is no column " + head)
	}
	drop := func(line []string) []string { return slices.Delete(slices.Clone(line), at, at+1) }
	t.head, t.rows = drop(t.head), operate.ViewsOf(t.rows, drop)
	return t
}

// textWidth is how many columns of a terminal a text takes that is printable: characters of East
// Asian scripts take two.
func textWidth(text string) int { return ansi.StringWidth(operate.Printable(text)) }
