package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"strconv"

	"petgate/shared/operate"
)

// limiting is the flag of lists that can be long.
type limiting struct {
	Limit rowLimit `short:"n" placeholder:"N" help:"Show at most N rows; 0: all (default: 30 in a table on a terminal, else all). Of keys and changes, the latest."`

	more bool // there are more rows than are shown
}

// rowLimit is a number of rows, or 0 for all.
type rowLimit struct {
	rows    int
	isGiven bool
}

func (l *rowLimit) UnmarshalText(text []byte) (err error) {
	if l.rows, err = strconv.Atoi(string(text)); err != nil || l.rows < 0 {
		return fmt.Errorf("%q is not a number of rows: use 1 or more, or 0 for all", text)
	}
	l.isGiven = true
	return nil
}

// rowsOnTerminal is how many rows a table on a terminal has.
const rowsOnTerminal = 30

// rows is how many rows are shown; 0: all.
func (l *limiting) rows(a *app) int {
	if !l.Limit.isGiven && a.OutTerminal && !a.asData() {
		return rowsOnTerminal
	}
	return l.Limit.rows
}

// pageRows is how many rows of a list are read at most at once.
const pageRows = 1000

// rowsOf lists what a finder finds, page by page. n is how many rows are wanted; 0: it is not
// known.
func rowsOf[V any](ctx context.Context, o operate.Operator, f operate.Finder[V], n int) iter.Seq2[V, error] {
	size := min(cmp.Or(n, pageRows)+1, pageRows)
	return func(yield func(V, error) bool) {
		for after, isLast := "", false; !isLast; {
			p, err := f.Page(ctx, o, after, size)
			if err != nil {
				var none V
				yield(none, err)
				return
			}
			for _, v := range p.Views {
				if !yield(v, nil) {
					return
				}
			}
			after, isLast = p.Next, p.Next == ""
		}
	}
}

// first returns the first n rows of a list, and notes whether there are more. 0: all rows.
func first[T any](l *limiting, n int, list iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := n
		for row, err := range list {
			l.more = n > 0 && left == 0 && err == nil
			if l.more || !yield(row, err) {
				return
			}
			left--
		}
	}
}

// printViews prints rows: as data, or as the table t with these cells.
func printViews[V any](a *app, views []V, t table, cells func(V) []string) error {
	for _, v := range views {
		t.rows = append(t.rows, cells(v))
	}
	return a.print(append([]V{}, views...), t)
}

// printList prints the rows of a list that are wanted: as data, each as soon as it is read, or as
// the table t with these cells.
func printList[V any](a *app, l *limiting, list iter.Seq2[V, error], t table, cells func(V) []string) error {
	list = first(l, l.rows(a), list)
	if a.asData() {
		return a.buffered(func(w io.Writer) error { return operate.WriteRows(w, string(a.cli.Output), list) })
	}
	for row, err := range list {
		if err != nil {
			return err
		}
		t.rows = append(t.rows, cells(row))
	}
	err := a.print(nil, t)
	if err == nil && l.more && !l.Limit.isGiven {
		a.note("There are more: --limit 0 shows all.")
	}
	return err
}

// buffered passes f a writer to standard output. If f fails, what is still in the buffer is not
// written.
func (a *app) buffered(f func(io.Writer) error) error {
	out := bufio.NewWriterSize(output{a.Out}, 64<<10)
	if err := f(out); err != nil {
		return err
	}
	return out.Flush()
}

// output is standard output with errors that say so.
type output struct{ io.Writer }

func (o output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		err = fmt.Errorf("write output: %w", err)
	}
	return n, err
}
