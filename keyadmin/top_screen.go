package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// screen is top on a terminal.
type screen struct {
	*topCommand
	app   *app
	watch *watch
	ctx   context.Context

	width, height int
	view          *topView // nil: nothing is known yet
	help          bool
	editing       bool // of the filter
	filter        string
}

// again asks for the next refresh.
type again struct{}

// screen draws refreshes until a person or a signal ends it.
func (c *topCommand) screen(ctx context.Context, a *app, w *watch) error {
	s := &screen{topCommand: c, app: a, watch: w, ctx: ctx, width: 80, height: 24}
	_, err := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(a.In), tea.WithOutput(a.Out), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramPanic) {
		return errors.New("top ended with a bug, which is described above")
	}
	return err
}

// Init begins with a refresh, which has no rates yet.
func (s *screen) Init() tea.Cmd { return s.refresh }

func (s *screen) refresh() tea.Msg {
	view := s.watch.refresh(s.ctx, s.By)
	return &view
}

// Update takes a key, the size of the terminal, or a refresh.
func (s *screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = max(m.Width, widthMin), m.Height
	case *topView:
		s.view = m
		s.By.sort(s.view.Tenants) // another order may have been chosen meanwhile
		return s, tea.Tick(time.Duration(s.Every)-s.app.Clock().Sub(m.at), func(time.Time) tea.Msg { return again{} })
	case again:
		return s, s.refresh
	case tea.PasteMsg:
		if s.editing {
			s.edit("", m.Content)
		}
	case tea.KeyPressMsg:
		if key := m.String(); key == "ctrl+c" || key == "ctrl+d" || key == "q" && !s.editing && !s.help {
			return s, tea.Quit
		}
		s.press(m.String(), m.Text)
	}
	return s, nil
}

// press obeys a key.
func (s *screen) press(key, text string) {
	switch {
	case s.editing:
		s.edit(key, text)
	case s.help:
		s.help = false
	case key == "?":
		s.help = true
	case key == "/":
		s.editing, s.filter = true, ""
	case key == "esc":
		s.filter = ""
	case key == "s":
		if s.By = s.By.next(); s.view != nil {
			s.By.sort(s.view.Tenants)
		}
	}
}

// edit changes the filter.
func (s *screen) edit(key, text string) {
	switch {
	case key == "enter":
		s.editing = false
	case key == "esc":
		s.editing, s.filter = false, ""
	case key == "backspace":
		_, size := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-size]
	case operate.Printable(text) == text && utf8.RuneCountInString(s.filter+text) <= keystore.NameRunesMax:
		s.filter += text
	}
}

// View is the frame or the help, and the keys in the last line.
func (s *screen) View() tea.View {
	var lines []string
	if s.help {
		lists, _, _ := strings.Cut(helpOf["top"], "Examples:") // of keys and columns, for a terminal of 60 columns
		for line := range strings.SplitSeq(lists, "\n") {
			if strings.HasPrefix(line, "    ") {
				lines = append(lines, shortened(line, s.width))
			} else if n := len(lines); n > 0 && lines[n-1] != "" {
				lines = append(lines, "")
			}
		}
	} else if s.view != nil {
		view := *s.view
		view.Tenants = filtered(view.Tenants, s.filter)
		view.cut(s.Limit)
		lines = frame{width: s.width, height: s.height - 1, style: s.app.styleOut}.lines(view)
	}
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, s.height-1)], s.app.styleOut(bold, shortened(s.footer(), s.width)))
	shown := tea.NewView(strings.Join(lines, "\n"))
	shown.AltScreen = true
	return shown
}

// footer names the keys.
func (s *screen) footer() string {
	filter := "filter"
	switch {
	case s.editing:
		return "Filter by tenant or plan: " + s.filter + "_   Enter keeps it, Esc ends it"
	case s.help:
		return "any key: back"
	case s.filter != "":
		filter = "filter: " + s.filter + "  Esc all"
	}
	return fmt.Sprintf("q quit  ? help  / %s  s order: %s", filter, s.By)
}
