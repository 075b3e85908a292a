package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// The control sequences of a screen (ECMA-48; the alternate screen is xterm's). Leaving restores what was there before.
const (
	screenEnter = "\x1b[?1049h\x1b[?25l" // alternate screen, no cursor
	screenLeave = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineEnd     = "\x1b[K\r\n" // clears the rest of the line; a terminal in raw mode needs the \r
	screenRest  = "\x1b[J"
)

// screen is top on a terminal.
type screen struct {
	*topCommand
	app  *app
	keys <-chan string

	view    topView
	hasView bool
	help    bool
	editing bool // of the filter
	filter  string
	ended   bool
}

// screen draws refreshes until a person or a signal ends it. It restores the terminal, also after a panic.
func (c *topCommand) screen(ctx context.Context, a *app, w *watch) error {
	restore, err := a.Raw()
	if err != nil {
		return fmt.Errorf("read keys from the terminal: %w", err)
	}
	defer restore()
	defer func() { _, _ = a.Out.Write([]byte(screenLeave)) }()
	if _, err := a.Out.Write([]byte(screenEnter)); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	s := &screen{topCommand: c, app: a, keys: readKeys(a)}
	for {
		began, by := a.Clock(), s.By
		view := topView{}
		err := s.during(ctx, func(ctx context.Context) error {
			view = w.refresh(ctx, by)
			return ctx.Err()
		})
		if err != nil || s.ended {
			return err
		}
		s.view, s.hasView = view, true
		s.By.sort(s.view.Tenants)
		if err := s.draw(); err != nil {
			return err
		}
		pause := time.Duration(c.Every) - a.Clock().Sub(began)
		if err := s.during(ctx, func(ctx context.Context) error { return a.Sleep(ctx, pause) }); err != nil || s.ended {
			return err
		}
	}
}

// readKeys reads what a person types. A key that is more than a byte, such as an arrow, arrives as one text.
func readKeys(a *app) <-chan string {
	keys := make(chan string)
	go func() {
		buffer := make([]byte, 64)
		for {
			n, err := a.In.Read(buffer)
			if n > 0 {
				keys <- string(buffer[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return keys
}

// during runs f and obeys keys meanwhile. If a key ends the screen, f is cancelled. A panic of f becomes one of the caller.
func (s *screen) during(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	panics := make(chan any, 1)
	go func() {
		defer func() {
			if panicked := recover(); panicked != nil {
				panics <- panicked
			}
		}()
		done <- f(ctx)
	}()
	var drawing error
	for {
		select {
		case panicked := <-panics:
			panic(panicked)
		case err := <-done:
			if s.ended {
				return drawing
			}
			return err
		case key := <-s.keys:
			if s.press(key); !s.ended && s.hasView {
				drawing = s.draw()
			}
			if s.ended || drawing != nil {
				s.ended = true
				cancel()
			}
		}
	}
}

const (
	keyInterrupt = "\x03" // Ctrl-C in raw mode
	keyEnd       = "\x04" // Ctrl-D
	keyEscape    = "\x1b"
)

// press obeys a key.
func (s *screen) press(key string) {
	switch {
	case key == keyInterrupt || key == keyEnd:
		s.ended = true
	case s.editing:
		s.edit(key)
	case s.help:
		s.help = false
	case key == "q":
		s.ended = true
	case key == "?":
		s.help = true
	case key == "/":
		s.editing, s.filter = true, ""
	case key == keyEscape:
		s.filter = ""
	case key == "s":
		s.By = s.By.next()
		s.By.sort(s.view.Tenants)
	}
}

// edit changes the filter.
func (s *screen) edit(key string) {
	switch {
	case key == "\r" || key == "\n":
		s.editing = false
	case key == keyEscape:
		s.editing, s.filter = false, ""
	case key == "\x7f" || key == "\b":
		_, size := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-size]
	case operate.Printable(key) == key && utf8.RuneCountInString(s.filter+key) <= keystore.NameRunesMax:
		s.filter += key
	}
}

// draw writes the screen: the frame or the help, and the keys in the last line.
func (s *screen) draw() error {
	columns, height := s.app.Size()
	if s.app.Width = columns; columns == 0 || height == 0 {
		s.app.Width, height = 80, 24
	}
	width := s.app.width()
	f := frame{
		width: width, height: height - 1, signs: sparkBlocks,
		style: func(code, text string) string { return s.app.style(true, code, text) },
	}
	var lines []string
	if s.help {
		for line := range strings.SplitSeq(topKeys+"\n\n"+topColumns, "\n") {
			lines = append(lines, shortened(line, width))
		}
	} else {
		view := s.view
		view.Tenants = filtered(view.Tenants, s.filter)
		view.cut(s.Limit)
		lines = f.lines(view)
	}
	var out strings.Builder
	out.WriteString(screenHome)
	for i := range height - 1 {
		if i < len(lines) {
			out.WriteString(lines[i])
		}
		out.WriteString(lineEnd)
	}
	out.WriteString(s.app.style(true, bold, shortened(s.footer(), width)) + "\x1b[K" + screenRest)
	if _, err := s.app.Out.Write([]byte(out.String())); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// footer names the keys.
func (s *screen) footer() string {
	switch {
	case s.editing:
		return "Filter by tenant or plan: " + s.filter + "_   Enter keeps it, Esc ends it"
	case s.help:
		return "any key: back"
	case s.filter != "":
		return "q quit  ? help  / filter: " + s.filter + "  Esc all  s order: " + string(s.By)
	}
	return "q quit  ? help  / filter  s order: " + string(s.By)
}
