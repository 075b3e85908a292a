package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
)

func plain(_, text string) string { return text }

func pointer(x float64) *float64 { return &x }

// busyView is a refresh with all that can be shown: gateways that answer and one that does not, and tenants small and large.
func busyView() topView {
	now := time.Date(2026, 3, 1, 12, 0, 5, 0, time.UTC)
	wave := func(most float64) (h history) {
		for second := range 60 {
			h.add(now.Add(time.Duration(second-59)*time.Second), 1, most*float64(second%20)/20)
		}
		return h
	}
	var last history
	last.add(now, 2, 1)
	return topView{
		At: "2026-03-01T12:00:05Z", at: now, By: "rate", Active: 1234, rate: 12345.6, refused: 678.9,
		Gateways: []topGateway{
			{ID: "gw-1.eu-central.example.com-8080-x7k2", Mode: "shared", RequestsPerSecond: pointer(6000.5), RefusedPerSecond: pointer(0), P50: pointer(0.21), P99: pointer(12.34)},
			{ID: "gw-2", Mode: "outage", RequestsPerSecond: pointer(6345.1), RefusedPerSecond: pointer(678.9), P50: pointer(250), P99: pointer(10000)},
			{ID: "gw-3", AdminAddress: "10.0.0.6:9090", Error: "no answer within 1 s"},
			{ID: "gw-4", Mode: "shared"},
		},
		Tenants: []topTenant{
			{TenantID: "ten_1", Tenant: "acme", Plan: "enterprise", RequestsPerSecond: 11000, RefusedPerSecond: 678.9, MinuteShare: 1, DayShare: 0.999, BannedKeys: 2, history: wave(11000)},
			{TenantID: "ten_2", Tenant: "a tenant with a long name and many words in it", Plan: "a-plan-with-a-long-name", RequestsPerSecond: 1344.6, MinuteShare: 0.5, DayShare: 0.001, history: wave(3)},
			{TenantID: "ten_3", Tenant: "\x1b[31mred", Plan: "free", RequestsPerSecond: 1, MinuteShare: 12, DayShare: 0.2, history: last},
			{TenantID: "ten_4", Tenant: "日本語の会社 quiet", Plan: "free"},
		},
	}
}

func TestTopFrame(t *testing.T) {
	s := newShell(t, "")
	colour := func(code, text string) string { return "\x1b[" + code + "m" + text + "\x1b[0m" }
	for _, c := range []struct {
		name  string
		frame frame
	}{
		{"60 columns", frame{width: 60, height: 24, style: colour}},
		{"80 columns", frame{width: 80, height: 24, style: colour}},
		{"80 columns, NO_COLOR", frame{width: 80, height: 24, style: plain}},
		{"200 columns", frame{width: 200, height: 24, style: colour}},
		{"no terminal", frame{style: plain}},
		{"40 columns and 12 lines", frame{width: 40, height: 12, style: plain}},
	} {
		fmt.Fprintf(&s.record, "%s:\n%s\n\n", c.name, strings.Join(c.frame.lines(busyView()), "\n"))
	}
	empty := topView{at: busyView().at, Problem: "The database cannot be read"}
	fmt.Fprintf(&s.record, "nothing:\n%s\n", strings.Join(frame{width: 80, style: plain}.lines(empty), "\n"))
	s.golden("top-frame")
}

// A gateway that does not answer is not counted among those for which there is no room.
func TestTopFrameCountsGatewaysOnce(t *testing.T) {
	v := topView{}
	for i := range 9 {
		g := topGateway{ID: fmt.Sprintf("gw-%d", i)}
		if i%3 == 2 {
			g.Error = "no answer within 1 s"
		}
		v.Gateways = append(v.Gateways, g)
	}
	lines := frame{width: 80, height: 12, style: plain}.gateways(v.Gateways)
	shown, more := 0, 0
	for _, line := range lines {
		if strings.Contains(line, "gw-") {
			shown++
		}
		_, _ = fmt.Sscanf(line, "and %d more", &more)
	}
	if more == 0 || shown+more != len(v.Gateways) {
		t.Errorf("%d gateways are shown and %d more, of %d:\n%s", shown, more, len(v.Gateways), strings.Join(lines, "\n"))
	}
}

// No line is wider or the screen longer than the terminal, and no column moves, whatever the figures are.
func TestTopFrameKeepsItsWidths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	figure := func() float64 { return random.ExpFloat64() * []float64{0, 0.001, 1, 1e3, 1e6, 1e9}[random.IntN(6)] }
	for width := widthMin; width <= 220; width += 15 {
		for range 4 {
			v := busyView()
			for i := range v.Tenants {
				tenant := &v.Tenants[i]
				tenant.RequestsPerSecond, tenant.RefusedPerSecond = figure(), figure()
				tenant.MinuteShare, tenant.DayShare, tenant.BannedKeys = figure(), figure(), random.IntN(9999)
			}
			g := &v.Gateways[0]
			g.RequestsPerSecond, g.P50, g.P99 = pointer(figure()), pointer(figure()), pointer(figure())
			v.rate, v.refused, v.Active = figure(), figure(), random.IntN(99_999)
			f := frame{width: width, height: 8 + random.IntN(20), style: plain}
			lines := f.lines(v)
			if len(lines) > f.height+1 {
				t.Errorf("%d lines in a screen of %d", len(lines), f.height)
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > width {
					t.Errorf("%d columns: a line of %d characters:\n%s", width, ansi.StringWidth(line), line)
				}
			}
			rows := f.tenants(v, v.Tenants)
			for _, line := range rows[1:] { // the last column is on the right
				if ansi.StringWidth(line) != ansi.StringWidth(rows[0]) {
					t.Errorf("%d columns: the columns have moved:\n%s\n%s", width, rows[0], line)
				}
			}
		}
	}
}

func TestFiguresAreShort(t *testing.T) {
	for _, c := range []struct {
		write func(float64) string
		x     float64
		want  string
	}{
		{rate, 0, "0.0"},
		{rate, 999.94, "999.9"},
		{rate, 999.95, "1,000"},
		{rate, 999_999, "999,999"},
		{rate, 1e6, "1.0M"},
		{rate, 1e12, "9999.0M"},
		{percent, 0, "0 %"},
		{percent, 0.0001, "<1 %"},
		{percent, 0.999, "99 %"},
		{percent, 1, "100 %"},
		{percent, 12, ">999 %"},
		{millis, 0.214, "0.21 ms"},
		{millis, 99.94, "99.9 ms"},
		{millis, 250, "250 ms"},
		{millis, 10_000, "10 s"},
	} {
		if got := c.write(c.x); got != c.want {
			t.Errorf("%v: %q, want %q", c.x, got, c.want)
		}
	}
}

// A part of a sparkline is the mean of its time. What is not known is blank, and a rate stays in its part as time goes on.
func TestHistory(t *testing.T) {
	at := func(second float64) time.Time {
		return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
	}
	var h history
	for second := 31; second <= 48; second++ {
		h.add(at(float64(second)), 1, max(0, float64(second-42)))
	}
	h.add(at(58), 10, 3) // a refresh came late
	for _, c := range []struct {
		now  float64
		n    int
		want string
	}{
		{58, 12, "      ▁▁▂█▆▆"}, {59.9, 12, "      ▁▁▂█▆▆"}, {60, 12, "     ▁▁▂█▆▆ "}, {58, 6, "   ▁▇█"}, {119, 12, "            "},
	} {
		if got := spark(h.bins(at(c.now), c.n)); got != c.want {
			t.Errorf("at %v in %d parts: %q, want %q", c.now, c.n, got, c.want)
		}
	}
	if h.isOver(at(117)) || !h.isOver(at(118)) {
		t.Error("a history is over when a minute has passed")
	}
}
