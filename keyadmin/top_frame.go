package main

import (
	"fmt"
	"math"
	"strings"

	"petgate/shared/operate"
)

// frame draws views. It is pure. Widths depend on the width of the terminal alone, never on the figures: so nothing jumps.
type frame struct {
	width  int // columns; 0: not a terminal
	height int // of the screen; 0: no limit
	style  func(code, text string) string
}

// plainWidth is the width of a frame that is not for a terminal.
const plainWidth = 120

// column is a column of a frame. Text is aligned to the left, figures to the right. The first column has the rest of the width.
type column[T any] struct {
	head  string
	width int
	text  bool
	from  int // columns of the narrowest terminal that shows it
	cell  func(T) string
}

// grid draws a head, in bold, and rows.
func grid[T any](f frame, columns []column[T], rows []T) []string {
	var shown []column[T]
	rest := f.width
	for _, c := range columns {
		if f.width >= c.from {
			shown = append(shown, c)
			rest -= c.width + len(gap)
		}
	}
	shown[0].width = min(40, rest+len(gap))
	line := func(cell func(column[T]) string) string {
		parts := make([]string, len(shown))
		for i, c := range shown {
			part := shortened(operate.Printable(cell(c)), c.width)
			fill := strings.Repeat(" ", c.width-textWidth(part))
			if c.text {
				parts[i] = part + fill
			} else {
				parts[i] = fill + part
			}
		}
		return strings.Join(parts, gap)
	}
	lines := []string{f.style(bold, line(func(c column[T]) string { return c.head }))}
	for _, r := range rows {
		lines = append(lines, strings.TrimRight(line(func(c column[T]) string { return c.cell(r) }), " "))
	}
	return lines
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
		out = append(out, f.warning(v.Problem))
	}
	out = append(append(append(out, ""), f.gateways(v.Gateways)...), "")
	tenants := v.Tenants
	if f.height > 0 {
		tenants = tenants[:max(0, min(len(tenants), f.height-len(out)-1))]
	}
	return append(out, f.tenants(v, tenants)...)
}

// warning cuts a line to the width of a terminal. Without one, it stays complete.
func (f frame) warning(text string) string {
	text = operate.Printable(text)
	if f.height > 0 {
		text = shortened(text, f.width)
	}
	return f.style(yellow, text)
}

// gateways draws the gateways: those that do not answer first, because there may be no room for all.
func (f frame) gateways(all []topGateway) []string {
	if len(all) == 0 {
		return []string{"No gateway is registered."}
	}
	var out, away []string
	var answering []topGateway
	for _, g := range all {
		if g.Mode == "outage" {
			away = append(away, g.ID)
		}
		if g.Error != "" {
			out = append(out, f.warning(fmt.Sprintf("! %s (%s): %s", g.ID, operate.OrDash(g.AdminAddress), g.Error)))
		} else {
			answering = append(answering, g)
		}
	}
	if len(answering) == 0 {
		return out
	}
	if away != nil {
		out = append(out, f.warning("! Redis is away from "+strings.Join(away, ", ")+": MINUTE and DAY show what one gateway knows"))
	}
	shown := len(answering)
	if f.height > 0 {
		shown = min(shown, max(0, max(4, f.height/3)-len(out)-1))
	}
	out = append(out, grid(f, []column[topGateway]{
		{"GATEWAY", 0, true, 0, func(g topGateway) string { return g.ID }},
		{"REQ/S", 7, false, 0, func(g topGateway) string { return optional(g.RequestsPerSecond, rate) }},
		{"REFUSED/S", 9, false, 60, func(g topGateway) string { return optional(g.RefusedPerSecond, rate) }},
		{"P50", 7, false, 60, func(g topGateway) string { return optional(g.P50, millis) }},
		{"P99", 7, false, 0, func(g topGateway) string { return optional(g.P99, millis) }},
		{"COUNTED", 7, true, 80, func(g topGateway) string { return g.Mode }},
	}, answering[:shown])...)
	if more := len(answering) - shown; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// sparkWidth is the length of a sparkline; it divides 60.
func (f frame) sparkWidth() int {
	switch {
	case f.width >= 160:
		return 60
	case f.width >= 120:
		return 30
	case f.width >= 80:
		return 12
	}
	return 10
}

func (f frame) tenants(v topView, tenants []topTenant) []string {
	return grid(f, []column[topTenant]{
		{"TENANT", 0, true, 0, func(t topTenant) string { return t.Tenant }},
		{"PLAN", 10, true, 80, func(t topTenant) string { return t.Plan }},
		{"REQ/S", 7, false, 0, func(t topTenant) string { return rate(t.RequestsPerSecond) }},
		{"LAST 60 S", f.sparkWidth(), true, 60, func(t topTenant) string { return spark(t.history.bins(v.at, f.sparkWidth())) }},
		{"MINUTE", 6, false, 0, func(t topTenant) string { return percent(t.MinuteShare) }},
		{"DAY", 6, false, 0, func(t topTenant) string { return percent(t.DayShare) }},
		{"REFUSED/S", 9, false, 60, func(t topTenant) string { return rate(t.RefusedPerSecond) }},
		{"BANS", 4, false, 80, func(t topTenant) string { return count(int64(t.BannedKeys)) }},
	}, tenants)
}

// signs are the characters of sparklines, from nothing to the largest.
var signs = []rune("▁▂▃▄▅▆▇█")

// spark draws rates. The largest one has the highest character; only a rate of 0 has the lowest.
func spark(rates []float64) string {
	most := 0.0
	for _, r := range rates {
		if r > most { // not NaN
			most = r
		}
	}
	text := make([]rune, len(rates))
	for i, r := range rates {
		switch {
		case math.IsNaN(r):
			text[i] = ' '
		case r <= 0:
			text[i] = signs[0]
		default:
			text[i] = signs[max(1, int(math.Ceil(r/most*float64(len(signs)-1))))]
		}
	}
	return string(text)
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
