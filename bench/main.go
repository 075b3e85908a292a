// Bench measures the gateway beside its peers and prints one table.
//
// Every row stands before the same upstream and, where it knows keys, serves the same 1,000 of them. Rows take turns:
// one short run each, then all over again, so that a machine whose speed drifts treats all alike; ratios are taken
// within a turn. What is counted is processor time, which a noisy machine distorts less than throughput or latency.
//
// Peers come from Debian's packages: bench/run installs them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	var (
		rounds      = flag.Int("rounds", 5, "turns; the table shows medians over them")
		duration    = flag.Duration("duration", 4*time.Second, "length of one run")
		connections = flag.String("connections", "1,32,128", "numbers of client connections")
		only        = flag.String("only", "", "rows to run, a regular expression; the first row always runs")
		out         = flag.String("out", "bench/results", "directory for the raw figures and the table")
		bin         = flag.String("bin", "bin", "directory of the built programs")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, *rounds, *duration, *connections, *only, *out, *bin); err != nil {
		log.Fatal("bench: ", err)
	}
}

func bench(ctx context.Context, rounds int, duration time.Duration, connections, only, out, bin string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var counts []int
	for field := range strings.SplitSeq(connections, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return fmt.Errorf("-connections: %q is not a number of connections", field)
		}
		counts = append(counts, n)
	}
	var rows []system
	for i, s := range systems {
		if i == 0 || pattern.MatchString(s.name) {
			rows = append(rows, s)
		}
	}

	l, err := openLab(ctx, bin)
	if err != nil {
		return err
	}
	defer l.close()
	result := Result{At: time.Now().UTC(), Machine: machine(), Rounds: rounds, Duration: duration.String()}
	for round := range rounds {
		for _, connections := range counts {
			for _, s := range rows {
				run, err := l.measure(ctx, s, connections, duration)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				run.Round = round
				result.Runs = append(result.Runs, run)
				log.Printf("round %d/%d  c=%-4d %-40s %7.0f req/s  %5.1f µs", round+1, rounds, connections, s.name,
					run.PerSecond, run.GatewayMicros+run.RedisMicros)
			}
		}
	}
	extra, err := l.specials(ctx, rounds, duration)
	if err != nil {
		return err
	}
	result.Specials = extra
	return result.write(out)
}

// Result is everything one invocation measured; bench/results holds the last full one.
type Result struct {
	At       time.Time
	Machine  map[string]string
	Rounds   int
	Duration string
	Runs     []Run
	Specials []Run // rows of a kind of their own: refused and unauthenticated requests
}

// Run is one system under one load for one duration.
type Run struct {
	System        string
	Round         int
	Connections   int
	Requests      int64
	PerSecond     float64
	P50Micros     int64
	P99Micros     int64
	GatewayMicros float64 // processor time of the gateway per request
	RedisMicros   float64 // and of Redis
	RedisCalls    float64 // per request
	ResidentMB    float64
	Refused       int64 // answers other than 2xx and 3xx
}

func (r Result) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "runs.json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	table := r.table()
	fmt.Print(table)
	return os.WriteFile(filepath.Join(dir, "table.md"), []byte(table), 0o644)
}

// machine says on what the figures were taken.
func machine() map[string]string {
	facts := map[string]string{}
	for name, path := range map[string]string{"kernel": "/proc/sys/kernel/osrelease", "cpu": "/proc/cpuinfo"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fact := strings.TrimSpace(string(text))
		if name == "cpu" {
			_, rest, _ := strings.Cut(fact, "model name\t: ")
			model, _, _ := strings.Cut(rest, "\n")
			facts["cores"] = strconv.Itoa(strings.Count(fact, "processor\t:"))
			fact = model
		}
		facts[name] = fact
	}
	return facts
}
