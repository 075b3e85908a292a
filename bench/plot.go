package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// The page, the plots, and the markers between which this program writes.
const (
	page        = "performance.md"
	markBegin   = "<!-- written by bench/run: begin -->\n"
	markEnd     = "<!-- written by bench/run: end -->\n"
	cpuPlot     = "performance-cpu.svg"
	latencyPlot = "performance-latency.svg"
)

// publish writes the plots and the tables to the documentation in dir.
func (r Result) publish(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, page))
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), markBegin)
	_, after, ends := strings.Cut(rest, markEnd)
	if !begins || !ends {
		return fmt.Errorf("%s: the markers for the tables are missing: %s and %s", page, markBegin, markEnd)
	}
	written := fmt.Sprintf("![CPU per request](%s)\n\n![Latency](%s)\n\n%s", cpuPlot, latencyPlot, r.tables())
	for name, content := range map[string]string{
		page: before + markBegin + written + markEnd + after, cpuPlot: r.plotCPU(), latencyPlot: r.plotLatency(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	plotWidth = 760
	labelLeft = 270
	lineStep  = 26
)

// canvas builds an SVG. It has a white background, so it stays readable on a dark page.
type canvas struct{ strings.Builder }

func newCanvas(height int, title string) *canvas {
	c := new(canvas)
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		plotWidth, height)
	fmt.Fprintf(c, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, height)
	c.text(10, 20, "start", title)
	return c
}

func (c *canvas) text(x, y float64, anchor, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(text))
}

func (c *canvas) bar(x, y, width float64, color string) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="16" fill="%s"/>`+"\n", x, y, width, color)
}

func (c *canvas) line(points [][2]float64, color string, width float64) {
	var path strings.Builder
	for _, p := range points {
		fmt.Fprintf(&path, "%.1f,%.1f ", p[0], p[1])
	}
	fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%.1f"/>`+"\n", strings.TrimSpace(path.String()), color, width)
}

func (c *canvas) String() string { return c.Builder.String() + "</svg>\n" }

// plotCPU shows the processor time per request: the gateway's, followed by that of Redis.
func (r Result) plotCPU() string {
	const gatewayColor, redisColor = "#4878a8", "#d08050"
	rows := r.rows("gateways")
	c := newCanvas(60+lineStep*len(rows), fmt.Sprintf("CPU µs per request, %d connections: the gateway's (blue) and Redis's (orange)", manyConnections))
	var most float64
	for _, name := range rows {
		most = max(most, over(r.of("gateways", name, manyConnections), Run.micros).median)
	}
	scale := (plotWidth - labelLeft - 70) / most
	for i, name := range rows {
		runs := r.of("gateways", name, manyConnections)
		gateway := over(runs, func(r Run) float64 { return r.GatewayMicros }).median
		redis := over(runs, func(r Run) float64 { return r.RedisMicros }).median
		y := float64(36 + lineStep*i)
		c.text(labelLeft-8, y+13, "end", name)
		c.bar(labelLeft, y, gateway*scale, gatewayColor)
		c.bar(labelLeft+gateway*scale, y, redis*scale, redisColor)
		c.text(labelLeft+(gateway+redis)*scale+6, y+13, "start", fmt.Sprintf("%.1f", gateway+redis))
	}
	return c.String()
}

// plotLatency shows latency from the 10th to the 99.9th percentile, on logarithmic axes.
func (r Result) plotLatency() string {
	const left, right, top, bottom = 60, plotWidth - 290, 40, 340
	c := newCanvas(bottom+50, fmt.Sprintf("Latency in µs by percentile, %d connections, medians of the rounds", someConnections))
	x := func(percentile float64) float64 {
		return left + (right-left)*math.Log10(90/(100-percentile))/math.Log10(90/(100-percentiles[len(percentiles)-1]))
	}
	const least, most = 100, 100_000
	y := func(micros float64) float64 {
		return bottom - (bottom-top)*math.Log10(min(max(micros, least), most)/least)/math.Log10(most/least)
	}
	for micros := float64(least); micros <= most; micros *= 10 {
		c.line([][2]float64{{left, y(micros)}, {right, y(micros)}}, "#ddd", 1)
		c.text(left-6, y(micros)+4, "end", fmt.Sprintf("%.0f", micros))
	}
	for _, p := range percentiles {
		c.line([][2]float64{{x(p), top}, {x(p), bottom}}, "#ddd", 1)
		if p != 25 && p != 75 { // too near to their neighbours
			c.text(x(p), bottom+16, "middle", fmt.Sprint(p))
		}
	}
	colors := []string{"#888888", "#bbbbbb", "#c0a050", "#60a060", "#7050a0", "#c03030", "#50a0c0", "#d08050", "#a06080"}
	for i, name := range r.rows("gateways") {
		runs := r.of("gateways", name, someConnections)
		var points [][2]float64
		for at, p := range percentiles {
			points = append(points, [2]float64{x(p), y(over(runs, latency(at)).median)})
		}
		width := 1.5
		if name == petgateRedis {
			width = 3
		}
		color := colors[i%len(colors)]
		c.line(points, color, width)
		c.bar(right+20, float64(top+lineStep*i), 16, color)
		c.text(right+42, float64(top+lineStep*i+13), "start", name)
	}
	return c.String()
}
