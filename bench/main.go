// Bench measures the gateway beside its peers, and the pet service beside its database, and writes the tables and plots
// of docs/performance.md.
//
// Every row stands before the same upstream and, where it knows keys, serves the same 1,000 of them. All rows run all the
// time and take turns under load: one short run each, then all over again, so that a machine whose speed drifts treats
// all alike; ratios are taken within a turn. What is compared is mostly processor time, which a noisy machine distorts
// less than throughput or latency.
//
// Peers come from Debian's packages: bench/run installs them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	var p program
	var connections, only, sections string
	var report bool
	flag.IntVar(&p.rounds, "rounds", 5, "turns; the tables show medians over them")
	flag.DurationVar(&p.duration, "duration", 2*time.Second, "length of one run, in whole seconds")
	flag.StringVar(&connections, "connections", "1,32,128", "numbers of client connections")
	flag.StringVar(&only, "only", "", "rows of the main table to run, a regular expression; the first row always runs")
	flag.StringVar(&sections, "sections", "", "sections to run, a regular expression: gateways, trip, refusals, pets, scale")
	flag.StringVar(&p.bin, "bin", "bin", "directory of the built programs")
	flag.BoolVar(&report, "report", false, "measure nothing: write the pages anew from the figures in -out")
	out := flag.String("out", "", "directory for the raw figures; empty writes none")
	docs := flag.String("docs", "", "directory whose performance.md and plots are written; empty writes none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.parse(connections, only, sections); err != nil {
		log.Fatal("bench: ", err)
	}
	result, err := readResult(*out)
	if report && len(result.Runs) == 0 {
		log.Fatal("bench: -report: there are no figures in -out ", *out)
	}
	if !report {
		if result, err = p.measure(ctx); err == nil && *out != "" {
			err = result.write(*out)
		}
	}
	if err == nil {
		fmt.Print(result.tables())
		if *docs != "" {
			err = result.publish(*docs)
		}
	}
	if err != nil {
		log.Fatal("bench: ", err)
	}
}

// program is what one invocation is to measure.
type program struct {
	rounds      int
	duration    time.Duration
	connections []int
	rows        []system
	sections    []section
	bin         string
}

func (p *program) parse(connections, only, sections string) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("%q is no option", flag.Arg(0))
	case p.rounds < 1:
		return fmt.Errorf("-rounds: at least 1")
	case p.duration < time.Second || p.duration%time.Second != 0:
		return fmt.Errorf("-duration: %v is no number of whole seconds", p.duration)
	}
	for field := range strings.SplitSeq(connections, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return fmt.Errorf("-connections: %q is not a number of connections", field)
		}
		p.connections = append(p.connections, n)
	}
	rows, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	for i, s := range systems {
		if i == 0 || rows.MatchString(s.name) {
			p.rows = append(p.rows, s)
		}
	}
	names, err := regexp.Compile(sections)
	if err != nil {
		return fmt.Errorf("-sections: %w", err)
	}
	for _, s := range allSections {
		if names.MatchString(s.name) {
			p.sections = append(p.sections, s)
		}
	}
	if len(p.sections) == 0 {
		return fmt.Errorf("-sections: none is like %q", sections)
	}
	return nil
}

func (p *program) measure(ctx context.Context) (Result, error) {
	l, err := openLab(ctx, p.bin)
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	result := Result{At: time.Now().UTC(), Machine: machine(), Rounds: p.rounds, Duration: p.duration.String()}
	result.Machine["load at the start"] = loadAverage()
	var turns []turn
	for _, s := range p.sections {
		t, err := s.open(ctx, l, p)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", s.name, err)
		}
		turns = append(turns, t)
	}
	for round := range p.rounds {
		for i, t := range turns {
			log.Printf("round %d of %d, %s", round+1, p.rounds, p.sections[i].name)
			runs, err := t(ctx)
			if err != nil {
				return Result{}, fmt.Errorf("%s: %w", p.sections[i].name, err)
			}
			for _, run := range runs {
				run.Round, run.Section = round, p.sections[i].name
				result.Runs = append(result.Runs, run)
			}
		}
	}
	result.Machine["load at the end"] = loadAverage()
	return result, nil
}
