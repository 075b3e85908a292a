package main

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"petgate/shared/operate"
)

// frame draws views. It is pure. Widths depend on the width of the terminal alone, never on the figures: so nothing jumps.
type frame struct {
	width  int // columns; 0: not a terminal
	height int // of the screen; 0: no limit
	signs  []rune
	style  func(code, text string) string
}

// plainWidth is the width of a frame that is not for a terminal.
const plainWidth = 120

// column is a column of a frame. Text is aligned to the left, figures to the right.
type column struct {
	head  string
	width int
	text  bool
}

// row pads and cuts cells to the widths of their columns.
func row(columns []column, cells []string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		cell := shortened(operate.Printable(cells[i]), c.width)
		fill := strings.Repeat(" ", c.width-utf8.RuneCountInString(cell))
		if c.text {
			parts[i] = cell + fill
		} else {
			parts[i] = fill + cell
		}
	}
	return strings.Join(parts, gap)
}

func heads(columns []column) string {
	var cells []string
	for _, c := range columns {
		cells = append(cells, c.head)
	}
	return row(columns, cells)
}

func used(columns []column) int {
	sum := 0
	for _, c := range columns {
		sum += c.width + len(gap)
	}
	return sum
}

// lines draws a view. A frame with a height shows as many tenants as fit.
func (f frame) lines(v topView) []string {
	if f.width == 0 {
		f.width = plainWidth
	}
	out := []string{
		shortened(fmt.Sprintf("%s  %7s req/s  %7s refused/s  tenants %6s", v.at.UTC().Format("15:04:05Z"),
			rate(v.rate), rate(v.refused), count(int64(v.Active))), f.width),
	}
	if v.Problem != "" {
		out = append(out, f.style(yellow, shortened(operate.Printable(v.Problem), f.width)))
	}
	out = append(out, "")
	out = append(out, f.gateways(v.Gateways)...)
	out = append(out, "")
	tenants := v.Tenants
	columns := f.tenantColumns()
	out = append(out, f.style(bold, heads(columns)))
	if f.height > 0 {
		tenants = tenants[:max(0, min(len(tenants), f.height-len(out)))]
	}
	for _, t := range tenants {
		out = append(out, strings.TrimRight(row(columns, f.cells(columns, t, v)), " "))
	}
	return out
}

// gateways draws the gateways: those that do not answer first, because there may be no room for all.
func (f frame) gateways(all []topGateway) []string {
	if len(all) == 0 {
		return []string{"No gateway is registered."}
	}
	var out []string
	var answering []topGateway
	for _, g := range all {
		if g.Error == "" {
			answering = append(answering, g)
			continue
		}
		line := fmt.Sprintf("! %s (%s): %s", g.ID, operate.OrDash(g.AdminAddress), g.Error)
		out = append(out, f.style(yellow, f.fitting(operate.Printable(line))))
	}
	columns := []column{{"REQ/S", 7, false}, {"REFUSED/S", 9, false}, {"P50", 7, false}, {"P99", 7, false}, {"COUNTED", 7, true}}
	if f.width < 80 {
		columns = columns[:4]
	}
	if f.width < 60 {
		columns = []column{columns[0], columns[3]}
	}
	columns = append([]column{{"GATEWAY", min(40, f.width-used(columns)), true}}, columns...)
	if len(answering) > 0 {
		out = append(out, f.style(bold, heads(columns)))
	}
	for i, g := range answering {
		if f.height > 0 && len(out) >= max(4, f.height/3) {
			return append(out, fmt.Sprintf("and %d more", len(answering)-i))
		}
		values := map[string]string{
			"GATEWAY": g.ID, "REQ/S": optional(g.RequestsPerSecond, rate), "REFUSED/S": optional(g.RefusedPerSecond, rate),
			"P50": optional(g.P50, millis), "P99": optional(g.P99, millis), "COUNTED": g.Mode,
		}
		out = append(out, strings.TrimRight(row(columns, pick(columns, values)), " "))
	}
	return out
}

// fitting cuts a line to the width of a terminal. Without one, it stays complete.
func (f frame) fitting(line string) string {
	if f.height == 0 {
		return line
	}
	return shortened(line, f.width)
}

func pick(columns []column, values map[string]string) []string {
	var cells []string
	for _, c := range columns {
		cells = append(cells, values[c.head])
	}
	return cells
}

const sparkHead = "LAST 60 S"

// tenantColumns are the columns that fit. The name of the tenant has the rest.
func (f frame) tenantColumns() []column {
	sparkWidth := 10
	switch {
	case f.width >= 160:
		sparkWidth = 60
	case f.width >= 120:
		sparkWidth = 30
	case f.width >= 80:
		sparkWidth = 12
	}
	columns := []column{
		{"PLAN", 10, true},
		{"REQ/S", 7, false},
		{sparkHead, sparkWidth, true},
		{"MINUTE", 6, false},
		{"DAY", 6, false},
		{"REFUSED/S", 9, false},
		{"BANS", 4, false},
	}
	if f.width < 80 {
		columns = columns[1:6]
	}
	if f.width < 60 {
		columns = []column{columns[0], columns[2], columns[3]}
	}
	return append([]column{{"TENANT", min(40, f.width-used(columns)), true}}, columns...)
}

func (f frame) cells(columns []column, t topTenant, v topView) []string {
	values := map[string]string{
		"TENANT": t.Tenant, "PLAN": t.Plan, "REQ/S": rate(t.RequestsPerSecond), "MINUTE": percent(t.MinuteShare), "DAY": percent(t.DayShare),
		"REFUSED/S": rate(t.RefusedPerSecond), "BANS": count(int64(t.BannedKeys)),
	}
	for _, c := range columns {
		if c.head == sparkHead {
			values[sparkHead] = spark(t.history.bins(v.at, c.width), f.signs)
		}
	}
	return pick(columns, values)
}

func optional(x *float64, write func(float64) string) string {
	if x == nil {
		return "-"
	}
	return write(*x)
}

// rate writes requests per second with at most seven characters.
func rate(x float64) string {
	switch {
	case x < 999.95:
		return fmt.Sprintf("%.1f", x)
	case x < 999_999.5:
		return count(int64(math.Round(x)))
	}
	return fmt.Sprintf("%.1fM", min(x/1e6, 9999))
}

// percent writes a share with at most six characters. Something is never 0 %, and not everything is never 100 %.
func percent(share float64) string {
	switch p := share * 100; {
	case p > 0 && p < 1:
		return "<1 %"
	case p > 999:
		return ">999 %"
	case p > 99 && p < 100:
		return "99 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

// millis writes a time in ms with at most seven characters.
func millis(ms float64) string {
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 9999.5:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.0f s", ms/1000)
}
