package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"petgate/shared/plot"
)

// The page, its plot, and the markers between which this program writes.
const (
	page      = "performance.md"
	markBegin = "<!-- written by bench/run: begin -->\n"
	markEnd   = "<!-- written by bench/run: end -->\n"
	cpuPlot   = "performance-cpu.svg"
)

// publish writes the plot and the summary to the documentation in dir.
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
	written := fmt.Sprintf("![CPU per request](%s)\n\n%s", cpuPlot, r.summary())
	newText := before + markBegin + written + markEnd + after
	for name, content := range map[string]string{page: newText, cpuPlot: r.plotCPU()} {
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
	c.Rect(0, 0, plotWidth, height, "white", "") // readable on a dark page
	c.Text(10, 20, "start", title)
	return c
}

// plotCPU shows the processor time per request: the gateway's, followed by that of Redis.
func (r Result) plotCPU() string {
	const gatewayColor, redisColor = "#4878a8", "#d08050"
	rows := r.systems("gateways")
	c := newCanvas("cpu", float64(60+lineStep*len(rows)),
		fmt.Sprintf("CPU µs per request, %d connections: the gateway's (blue) and Redis's (orange)", manyConnections))
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
	return string(c.SVG())
}
