package main

import (
	"fmt"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Result is what one invocation measured.
type Result struct {
	At       time.Time
	Machine  map[string]string
	Rounds   int
	Duration string
	Notes    map[string][]string // what a section leaves out
	Runs     []Run
}

// row is one row of a table. A section that loads its systems in one way names no load.
type row struct {
	section, load, system string
	connections           int // 0 matches any number
}

// runs returns the runs of a row, one per round.
func (r Result) runs(at row) (runs []Run) {
	for _, run := range r.Runs {
		if at.connections != 0 && run.Connections != at.connections {
			continue
		}
		if run.Section == at.section && run.Load == at.load && run.System == at.system {
			runs = append(runs, run)
		}
	}
	return runs
}

// of returns the runs of a row of a section that loads its systems in one way.
func (r Result) of(section, system string, connections int) []Run {
	return r.runs(row{section: section, system: system, connections: connections})
}

// rowsOf lists the rows of a section in their order. 0 connections stands for any number.
func (r Result) rowsOf(section string, connections int) (rows []row) {
	for _, run := range r.Runs {
		at := row{run.Section, run.Load, run.System, connections}
		isOfSection := run.Section == section && (connections == 0 || run.Connections == connections)
		if isOfSection && !slices.Contains(rows, at) {
			rows = append(rows, at)
		}
	}
	return rows
}

// systems lists the systems of a section in their order.
func (r Result) systems(section string) (names []string) {
	for _, at := range r.rowsOf(section, 0) {
		if !slices.Contains(names, at.system) {
			names = append(names, at.system)
		}
	}
	return names
}

type spread struct{ min, median, max float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	slices.Sort(values)
	return spread{values[0], values[len(values)/2], values[len(values)-1]}
}

func (s spread) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.min, s.max) }

// over returns the spread of a figure over the rounds.
func over(runs []Run, figure func(Run) float64) spread {
	values := make([]float64, 0, len(runs))
	for _, run := range runs {
		values = append(values, figure(run))
	}
	return spreadOf(values)
}

// ratio returns the spread of one row's figure divided by another row's in the same round.
func ratio(above, below []Run, figure func(Run) float64) spread {
	var values []float64
	for a, b := range byRound(above, below) {
		if figure(b) > 0 {
			values = append(values, figure(a)/figure(b))
		}
	}
	return spreadOf(values)
}

// byRound pairs the runs of two rows that are of the same round.
func byRound(rows, others []Run) iter.Seq2[Run, Run] {
	return func(yield func(Run, Run) bool) {
		for _, a := range rows {
			for _, b := range others {
				if a.Round == b.Round && !yield(a, b) {
					return
				}
			}
		}
	}
}

func perSecond(r Run) float64   { return r.PerSecond }
func redisCalled(r Run) float64 { return r.RedisCalls }

func latency(at int) func(Run) float64 {
	return func(r Run) float64 {
		if len(r.Percentiles) <= at {
			return 0
		}
		return float64(r.Percentiles[at])
	}
}

var (
	version     = regexp.MustCompile(`\d+(\.\d+)+`)
	kernelMinor = regexp.MustCompile(`^\d+\.\d+`)
)

// machine describes the hardware, and gives the versions of what ran on it.
func machine() map[string]string {
	facts := map[string]string{}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		facts["kernel"] = kernelMinor.FindString(string(text))
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(text), "model name\t: ")
		facts["cpu"], _, _ = strings.Cut(rest, "\n")
		facts["cores"] = strconv.Itoa(strings.Count(string(text), "processor\t:"))
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		kB, _ := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
		facts["memory"] = fmt.Sprintf("%.0f GiB", kB/(1<<20))
	}
	for name, command := range map[string][]string{
		"nginx": {"nginx", "-v"}, "haproxy": {"haproxy", "-v"}, "redis": {"redis-server", "--version"},
		"go":  {"go", "version"},
		"wrk": {"wrk", "-v"},
	} {
		out, _ := exec.Command(command[0], command[1:]...).CombinedOutput() // wrk -v exits with 1
		facts[name] = version.FindString(string(out))
	}
	commit, _ := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	facts["commit"] = strings.TrimSpace(string(commit))
	return facts
}
