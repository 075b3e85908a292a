package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// drifting is a result from a machine that is ten times slower in its second round. Ratios taken
// within a round do not show that; a ratio of medians would.
func drifting() Result {
	run := func(section, system string, round, connections int, micros float64) Run {
		return Run{
			Section:       section,
			System:        system,
			Round:         round,
			Connections:   connections,
			PerSecond:     1e6 / micros,
			GatewayMicros: micros,
			Percentiles:   []int64{1, 2, int64(micros), 4, 5, 6, 7, 8},
		}
	}
	var r Result
	for round, slow := range []float64{1, 10, 2} {
		for _, connections := range []int{1, someConnections, manyConnections} {
			r.Runs = append(r.Runs, run("gateways", nginxPlain, round, connections, 10*slow),
				run("gateways", petgateRedis, round, connections, 15*slow))
		}
	}
	return r
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	r := drifting()
	got := ratio(r.of("gateways", petgateRedis, manyConnections), r.of("gateways", nginxPlain, manyConnections),
		Run.micros)
	if want := (spread{1.5, 1.5, 1.5}); got != want {
		t.Errorf("ratio %+v, want %+v", got, want)
	}
	if got, want := over(r.of("gateways", petgateRedis, 1), Run.micros), (spread{15, 30, 150}); got != want {
		t.Errorf("over the rounds %+v, want %+v", got, want)
	}
}

func TestPageKeepsWhatPeopleWrote(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, page)
	if err := os.WriteFile(path, []byte("before\n"+markBegin+"old\n"+markEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := drifting()
	for range 2 {
		if err := r.publish(dir); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := string(text)
	isKept := strings.HasPrefix(s, "before\n"+markBegin) && strings.HasSuffix(s, markEnd+"after\n")
	isReplaced := !strings.Contains(s, "old") && strings.Count(s, "### Saturation, 128 connections") == 1
	if !isKept || !isReplaced || !strings.Contains(s, "| 30.0 | 1.50 (1.50–1.50) |") {
		t.Errorf("the page is\n%s", s)
	}
	file, err := os.Open(filepath.Join(dir, cpuPlot))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for decoder := xml.NewDecoder(file); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s is no XML: %v", cpuPlot, err)
		}
	}
	if err := os.WriteFile(path, []byte("without a place\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.publish(dir); err == nil {
		t.Error("a page without a place for the tables was written")
	}
}

// benchstat pairs the sides by the name of a benchmark, and knows a figure by its unit.
func TestComparison(t *testing.T) {
	var r Result
	for round, slow := range []float64{1, 10, 2} {
		for name, micros := range map[string]float64{before: 20, after: 10} {
			r.Runs = append(r.Runs, Run{
				Section: comparedPrefix + "quotas in memory", Load: "32 connections", System: name,
				Round: round, GatewayMicros: micros * slow, SystemCalls: 4,
			})
		}
	}
	const line = "BenchmarkQuotas_in_memory/32_connections 1 " +
		"10 gateway-µs/request 10 both-µs/request 4 syscalls/request\n"
	if text := string(r.benchmarks(after)); !strings.HasPrefix(text, line) || strings.Count(text, "\n") != 3 {
		t.Errorf("the benchmarks are\n%s", text)
	}
	text, err := r.benchstat(t.Context())
	if err != nil || !strings.Contains(text, "40.00") || !strings.Contains(text, "20.00") {
		t.Errorf("%v\n%s", err, text)
	}
}
