// Bench measures the gateway next to other proxies, and the pet service next to its database. It
// prints all tables, and writes a summary with a plot to docs/performance.md. With -before it
// compares the gateways of two revisions instead.
//
// All gateways and proxies have the same upstream; those that check keys serve the same 1,000 keys.
// All of them run all the time and take turns under load, one short run each in every round. A
// change in the machine's speed therefore affects all of them alike, and ratios are taken within a
// round. Most comparisons are of processor time, because a busy machine distorts it less than
// throughput or latency.
//
// The other proxies come from Debian's packages; bench/run installs them.
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
	flag.IntVar(&p.rounds, "rounds", 5,
		"number of rounds; the tables show medians over them, and -before needs six to be sure")
	flag.DurationVar(&p.duration, "duration", 2*time.Second,
		"length of one run, in whole seconds; those at a fixed rate have lengths of their own")
	flag.StringVar(&connections, "connections", "1,32,128",
		"numbers of client connections of the main table and of -before, separated by commas")
	flag.StringVar(&only, "only", "",
		"regular expression: rows of the main table and of -before to run; the first row of the main table always runs")
	flag.StringVar(&sections, "sections", "", "regular expression: sections to run; "+sectionNames())
	flag.StringVar(&p.bin, "bin", "bin", "directory of the built programs")
	flag.StringVar(&p.before, "before", "",
		"compare with the gateway and keyadmin of another revision in this directory, and measure nothing else")
	docs := flag.String("docs", "", "write the summary and its plot to performance.md in this directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.parse(connections, only, sections); err != nil {
		log.Fatal("bench: ", err)
	}
	result, err := p.measure(ctx)
	if err == nil {
		fmt.Print(result.tables())
		if p.before != "" {
			var compared string
			compared, err = result.benchstat(ctx)
			fmt.Print(compared)
		}
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
	rows        []system // of the main table
	compared    []system
	sections    []section
	bin         string
	before      string // directory of the programs to compare with; empty to measure all systems
}

func (p *program) parse(connections, only, sections string) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case p.rounds < 1:
		return fmt.Errorf("-rounds: at least 1")
	case p.duration < time.Second || p.duration%time.Second != 0:
		return fmt.Errorf("-duration: %v is not a whole number of seconds", p.duration)
	}
	for field := range strings.SplitSeq(connections, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return fmt.Errorf("-connections: %q is not a positive number", field)
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
	for _, s := range comparedRows {
		if rows.MatchString(s.name) {
			p.compared = append(p.compared, s)
		}
	}
	names, err := regexp.Compile(sections)
	if err != nil {
		return fmt.Errorf("-sections: %w", err)
	}
	for _, s := range allSections() {
		if names.MatchString(s.name) {
			p.sections = append(p.sections, s)
		}
	}
	if len(p.sections) == 0 {
		return fmt.Errorf("-sections: no section matches %q", sections)
	}
	if p.before != "" {
		p.sections = []section{{"compare", compare}}
	}
	return nil
}

func sectionNames() string {
	var names []string
	for _, s := range allSections() {
		names = append(names, s.name)
	}
	return strings.Join(names, ", ")
}

func (p *program) measure(ctx context.Context) (Result, error) {
	l, err := openLab(ctx, p.bin)
	if err != nil {
		return Result{}, err
	}
	defer l.close()
	if p.before == "" {
		if err := l.createKeys(ctx); err != nil {
			return Result{}, err
		}
	}
	result := Result{
		At:       time.Now().UTC(),
		Machine:  machine(),
		Rounds:   p.rounds,
		Duration: p.duration.String(),
		Notes:    l.notes,
	}
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
				run.Round = round
				if run.Section == "" {
					run.Section = p.sections[i].name
				}
				result.Runs = append(result.Runs, run)
			}
		}
	}
	return result, nil
}
