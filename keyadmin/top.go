package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type topCommand struct {
	By    topOrder `default:"rate" complete:"order" placeholder:"ORDER" help:"Order by rate, minute, day, refused or bans."`
	Every period   `placeholder:"TIME" help:"Interval of refreshes: 1s to 1m (default: 1s)."`
	Once  bool     `help:"Print one refresh and end."`
	Limit int      `short:"n" default:"30" placeholder:"N" help:"Show the first N tenants."`
}

// BadSettings checks numbers.
func (c *topCommand) BadSettings() service.BadSettings {
	var bad service.BadSettings
	bad.Require(c.Limit >= 1 && c.Limit <= askTenants, "limit", "use 1 to %d", askTenants)
	bad.Require(time.Duration(c.Every) <= time.Minute, "every", "use 1s to 1m")
	return bad
}

// topOrder is what tenants are ordered by, the largest first.
type topOrder string

var topOrders = []topOrder{"rate", "minute", "day", "refused", "bans"}

func (o *topOrder) UnmarshalText(text []byte) error {
	if *o = topOrder(text); !slices.Contains(topOrders, *o) {
		return fmt.Errorf("%q is not an order: use rate, minute, day, refused or bans", text)
	}
	return nil
}

// next returns the order after o, for the key s.
func (o topOrder) next() topOrder {
	return topOrders[(slices.Index(topOrders, o)+1)%len(topOrders)]
}

func (o topOrder) sort(tenants []topTenant) {
	value := func(t topTenant) float64 {
		switch o {
		case "minute":
			return t.MinuteShare
		case "day":
			return t.DayShare
		case "refused":
			return t.RefusedPerSecond
		case "bans":
			return float64(t.BannedKeys)
		}
		return t.RequestsPerSecond
	}
	slices.SortFunc(tenants, func(a, b topTenant) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(b.RequestsPerSecond, a.RequestsPerSecond), cmp.Compare(a.TenantID, b.TenantID))
	})
}

func (c *topCommand) Run(ctx context.Context, a *app, _ *keystore.Store) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if c.Every == 0 {
		c.Every = period(time.Second)
		c.Once = c.Once || !a.OutTerminal // a pipe that never ends must be asked for
	}
	w := newWatch(a)
	var err error
	if c.interactive(a) {
		err = c.screen(ctx, a, w)
	} else {
		err = c.lines(ctx, a, w)
	}
	if ctx.Err() != nil || errors.Is(err, context.Canceled) { // an interrupt is how it ends
		return nil
	}
	return err
}

// interactive reports whether there is a terminal that can show a screen.
func (c *topCommand) interactive(a *app) bool {
	return !c.Once && !a.asData() && a.InTerminal && a.OutTerminal && a.env["TERM"] != "dumb"
}

// lines prints a block for each refresh. The first refresh has no rates yet, so it is not printed.
func (c *topCommand) lines(ctx context.Context, a *app, w *watch) error {
	for n := 0; ; n++ {
		began := a.Clock()
		view := w.refresh(ctx, c.By)
		if ctx.Err() != nil {
			return nil
		}
		if n > 0 {
			if err := c.print(a, view); err != nil || c.Once {
				return err
			}
		}
		if err := a.Sleep(ctx, time.Duration(c.Every)-a.Clock().Sub(began)); err != nil {
			return err
		}
	}
}

// print prints one refresh: a block of lines, an object, or a line of CSV for each tenant.
func (c *topCommand) print(a *app, view topView) error {
	view.cut(c.Limit)
	switch {
	case a.cli.Output == "csv":
		if view.Problem != "" {
			a.warn("%s", operate.Printable(view.Problem))
		}
		for _, g := range view.Gateways {
			if g.Error != "" {
				a.warn("gateway %s: %s", g.ID, g.Error)
			}
		}
		err := a.print(view.csv(), table{})
		a.headed = true
		return err
	case a.cli.Output == "json" && c.Once:
		return a.print(view, table{})
	case a.cli.Output == "json":
		line, err := json.Marshal(view) // one object in a line, so that a reader can take them one by one
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return a.writeLines([]string{string(line)})
	}
	lines := frame{width: a.width(), style: a.styleOut}.lines(view)
	if !c.Once {
		lines = append(lines, "")
	}
	return a.writeLines(lines)
}

func (a *app) writeLines(lines []string) error {
	if _, err := a.Out.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

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
