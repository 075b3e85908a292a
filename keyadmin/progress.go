package main

import (
	"fmt"
	"time"

	"petgate/shared/operate"
)

// statusLine is a line on a terminal that is written again and again while a command works.
type statusLine struct {
	app   *app
	last  time.Time // when the line was last written, at first when the work began
	shown bool
}

func (a *app) statusLine() *statusLine { return &statusLine{app: a, last: a.Clock()} }

const statusEvery = 200 * time.Millisecond

// show writes the line, but neither at once nor more often than an eye can read it.
func (l *statusLine) show(text string) {
	now := l.app.Clock()
	if !l.app.ErrTerminal || l.app.env["TERM"] == "dumb" || now.Sub(l.last) < statusEvery {
		return
	}
	l.last, l.shown = now, true
	text = operate.Printable(text)
	if width := l.app.columns(); width > 0 {
		text = shortened(text, width-1)
	}
	fmt.Fprintf(l.app.Err, "\r\x1b[K%s", text)
}

// rows shows how many rows of a table have been copied.
func (l *statusLine) rows(table string, rows int64) { l.show(table + ": " + count(rows) + " rows") }

// end removes the line.
func (l *statusLine) end() {
	if l.shown {
		fmt.Fprint(l.app.Err, "\r\x1b[K")
		l.shown = false
	}
}
