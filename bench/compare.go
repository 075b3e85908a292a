package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The two sides of a comparison.
const (
	before = "before"
	after  = "after"
)

// comparedRows are the gateways that each side runs.
var comparedRows = []system{
	{name: "quotas in Redis", start: petgate("redis"), redis: true},
	{name: "quotas in memory", start: petgate("memory")},
}

// comparedPrefix begins the names of a comparison's sections.
const comparedPrefix = "compare: "

// comparedKeys are fewer than keyCount: keyadmin starts twice for each.
const comparedKeys = 200

// countingRun is how long system calls are counted. Counting slows the gateway, so its processor
// time is taken in another run.
const countingRun = time.Second

// compare runs the gateways of two revisions in turns. Each revision has a database, a Redis and
// keys of its own, because their schemas and their records may differ. The side that goes first
// changes with each round.
func compare(ctx context.Context, l *lab, p *program) (turn, error) {
	sites := map[string]*site{}
	labs := map[string]*lab{}
	for _, name := range []string{before, after} {
		bin := p.bin
		if name == before {
			bin = p.before
		}
		log.Printf("%s: creating %d keys with %s", name, comparedKeys, filepath.Join(bin, "keyadmin"))
		side, err := l.openSide(ctx, name, bin)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		labs[name] = side
		for _, row := range p.compared {
			if sites[name+row.name], err = side.open(ctx, row, setup{hasLog: true}); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	order := []string{after, before}
	return func(ctx context.Context) (runs []Run, err error) {
		order[0], order[1] = order[1], order[0]
		for _, row := range p.compared {
			for _, load := range p.comparedLoads() {
				for _, name := range order {
					side, o, t := labs[name], sites[name+row.name], load.traffic
					t.duration, t.keysPath = p.duration, side.keysPath
					run, err := side.measure(ctx, name, t, o)
					if err != nil {
						return nil, err
					}
					run.Section, run.Load = comparedPrefix+row.name, load.name
					t.duration = countingRun
					if t.perSecond == 0 {
						run.SystemCalls, err = side.countSystemCalls(ctx, o, t)
						if err != nil {
							return nil, err
						}
					}
					runs = append(runs, run)
				}
			}
		}
		return runs, nil
	}, nil
}

// comparedLoads are those at a fixed rate, and a load with each number of connections.
func (p *program) comparedLoads() (loads []load) {
	loads = append(loads, openLoop...)
	for _, n := range p.connections {
		loads = append(loads, load{name: fmt.Sprintf("%d connections", n), traffic: traffic{connections: n}})
	}
	return loads
}

// openSide makes a lab with the programs in bin. It shares only the upstream, the database server
// and the certificate with l.
func (l *lab) openSide(ctx context.Context, name, bin string) (*lab, error) {
	side := newLab(filepath.Join(l.dir, name), bin)
	side.upstreamAddr = l.upstreamAddr
	side.certificate, side.privateKey, side.identity = l.certificate, l.privateKey, l.identity
	l.sides = append(l.sides, side)
	if err := os.Mkdir(side.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if side.redis[everyone], err = side.startRedis(ctx); err != nil {
		return nil, err
	}
	server := *l.postgres
	side.postgres = &server
	if server.url, err = l.postgres.createDatabase(ctx, name); err != nil {
		return nil, err
	}
	return side, side.issueKeys(ctx)
}

// issueKeys creates the keys with the side's own keyadmin: bench itself knows the schema of one
// revision only.
func (l *lab) issueKeys(ctx context.Context) error {
	const most = "1000000000"
	for _, args := range [][]string{{"migrate"}, {"plan", "create", "bench", "--minute", most, "--day", most}} {
		if _, err := l.keyadmin(ctx, args...); err != nil {
			return err
		}
	}
	var tokens strings.Builder
	for i := range comparedKeys {
		tenant := "tenant-" + strconv.Itoa(i)
		if _, err := l.keyadmin(ctx, "tenant", "create", tenant, "--plan", "bench"); err != nil {
			return err
		}
		token, err := l.keyadmin(ctx, "key", "create", tenant)
		if err != nil {
			return err
		}
		tokens.WriteString(token)
	}
	return os.WriteFile(l.keysPath, []byte(tokens.String()), 0o600)
}

// keyadmin returns what the command writes to standard output.
func (l *lab) keyadmin(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.binary("keyadmin"), args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+l.postgres.url)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("keyadmin %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(stdout), nil
}

// countSystemCalls returns the gateway's system calls per request, or 0 if perf cannot count them
// here: it needs Debian's linux-perf and the right to trace the kernel.
func (l *lab) countSystemCalls(ctx context.Context, o *site, t traffic) (float64, error) {
	report := filepath.Join(l.dir, "perf")
	pid := strconv.Itoa(o.process.cmd.Process.Pid)
	perf := []string{"perf", "stat", "-x", ";", "-o", report, "-e", "raw_syscalls:sys_enter", "-p", pid, "--"}
	if err := exec.CommandContext(ctx, perf[0], append(perf[1:], "true")...).Run(); err != nil {
		log.Printf("system calls are not counted: perf stat: %v", err)
		return 0, nil
	}
	s, err := wrk(ctx, o, t, perf...)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, rest, _ := strings.Cut(line, ";"); strings.Contains(rest, "sys_enter") {
			calls, err := strconv.ParseFloat(value, 64)
			return calls / float64(s.Requests), err
		}
	}
	return 0, fmt.Errorf("perf stat printed no count:\n%s", text)
}

// comparedFigures are what benchstat compares, by unit. Figures that are always 0 are left out.
var comparedFigures = []struct {
	unit string
	of   func(Run) float64
}{
	{"gateway-µs/request", func(r Run) float64 { return r.GatewayMicros }},
	{"redis-µs/request", func(r Run) float64 { return r.RedisMicros }},
	{"both-µs/request", Run.micros},
	{"syscalls/request", func(r Run) float64 { return r.SystemCalls }},
	{"redis-calls/request", redisCalled},
	{"requests/s", perSecond},
	{"p50-µs", latency(p50)},
	{"p99-µs", latency(p99)},
	{"gateway-MB", func(r Run) float64 { return r.ResidentMB }},
}

// benchmarks returns the runs of a side as lines of Go's benchmarks, which benchstat reads.
func (r Result) benchmarks(side string) []byte {
	var b bytes.Buffer
	for _, run := range r.Runs {
		if run.System != side {
			continue
		}
		name := strings.ReplaceAll(strings.TrimPrefix(run.Section, comparedPrefix)+"/"+run.Load, " ", "_")
		fmt.Fprintf(&b, "Benchmark%s 1", strings.ToUpper(name[:1])+name[1:])
		for _, f := range comparedFigures {
			if value := f.of(run); value > 0 {
				fmt.Fprintf(&b, " %g %s", value, f.unit)
			}
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// benchstat returns what the tool of this name says of the two sides.
func (r Result) benchstat(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "petgate-bench-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	args := []string{"tool", "benchstat"}
	for _, side := range []string{before, after} {
		path := filepath.Join(dir, side)
		if err := os.WriteFile(path, r.benchmarks(side), 0o600); err != nil {
			return "", err
		}
		args = append(args, side+"="+path)
	}
	text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("benchstat: %w\n%s", err, text)
	}
	return string(text), nil
}
