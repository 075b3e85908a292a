package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"petgate/shared/plot"
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

// barHeight is the height of a bar in a plot and of the square in a legend.
const barHeight = 16

func newCanvas(id string, height float64, title string) *plot.Canvas {
	c := plot.New(id, plotWidth, height, title, "The tables below have the figures.")
	c.Text(10, 20, "start", title)
	return c
}

// plotCPU shows the processor time per request: the gateway's, followed by that of Redis.
func (r Result) plotCPU() string {
	const gatewayColor, redisColor = "#4878a8", "#d08050"
	rows := r.systems("gateways")
	c := newCanvas("cpu", float64(60+lineStep*len(rows)), fmt.Sprintf("CPU µs per request, %d connections: the gateway's (blue) and Redis's (orange)", manyConnections))
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
		c.Text(labelLeft-8, y+13, "end", name)
		c.Rect(labelLeft, y, gateway*scale, barHeight, gatewayColor, "")
		c.Rect(labelLeft+gateway*scale, y, redis*scale, barHeight, redisColor, "")
		c.Text(labelLeft+(gateway+redis)*scale+6, y+13, "start", fmt.Sprintf("%.1f", gateway+redis))
	}
	return string(c.SVG(plot.White))
}

// plotLatency shows latency from the 10th to the 99.9th percentile, on logarithmic axes.
func (r Result) plotLatency() string {
	const left, right, top, bottom = 60, plotWidth - 290, 40, 340
	c := newCanvas("latency", bottom+50, fmt.Sprintf("Latency in µs by percentile, %d connections, medians of the rounds", someConnections))
	x := func(percentile float64) float64 {
		return left + (right-left)*math.Log10(90/(100-percentile))/math.Log10(90/(100-percentiles[len(percentiles)-1]))
	}
	const least, most = 100, 100_000
	y := func(micros float64) float64 {
		return bottom - (bottom-top)*math.Log10(min(max(micros, least), most)/least)/math.Log10(most/least)
	}
	for micros := float64(least); micros <= most; micros *= 10 {
		c.Line([][2]float64{{left, y(micros)}, {right, y(micros)}}, "#ddd", 1, "")
		c.Text(left-6, y(micros)+4, "end", fmt.Sprintf("%.0f", micros))
	}
	for _, p := range percentiles {
		c.Line([][2]float64{{x(p), top}, {x(p), bottom}}, "#ddd", 1, "")
		if p != 25 && p != 75 { // too near to their neighbours
			c.Text(x(p), bottom+16, "middle", fmt.Sprint(p))
		}
	}
	colors := []string{"#888888", "#bbbbbb", "#c0a050", "#60a060", "#7050a0", "#c03030", "#50a0c0", "#d08050", "#a06080"}
	for i, name := range r.systems("gateways") {
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
		c.Line(points, color, width, "")
		c.Rect(right+20, float64(top+lineStep*i), barHeight, barHeight, color, "")
		c.Text(right+42, float64(top+lineStep*i+13), "start", name)
	}
	return string(c.SVG(plot.White))
}
