package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// wait is what a request of the gateway waits for.
type wait uint8

const (
	running  wait = iota // it runs, unless the kernel has taken the core from its thread
	ready                // for a thread of Go's scheduler
	upstream             // for the upstream's response, and until the poller sees it
	redis                // for its batch, or for the batch before it
	lock
	collector
	elsewhere
	waits // the number of waits
	idle  // between two requests
)

var waitNames = [waits]string{
	"runs, or its thread waits for a core", "ready: waits for a thread of Go's scheduler", "waits for the upstream",
	"waits for Redis: its batch, and the one before", "waits for a lock", "waits for the garbage collector", "waits for something else",
}

// traced is a request as the runtime's trace shows it: from the arrival of its bytes to the next wait for its client.
type traced struct {
	began, ended time.Duration
	spent        [waits]time.Duration
}

func (r *traced) took() time.Duration { return r.ended - r.began }

// execution is what a trace of the gateway's runtime shows.
type execution struct {
	requests []traced
	skipped  int                // requests that the trace shows in part, or together with the next one
	pauses   [][2]time.Duration // stops of the world
	marks    [][2]time.Duration // concurrent marking by the collector
	others   []slice            // of goroutines that serve no client
}

// slice is a time for which a goroutine kept its thread.
type slice struct {
	function     string
	began, ended time.Duration
}

// longSlice is how long a goroutine that serves no client has to run to be listed: a request may have to wait for its thread.
const longSlice = time.Millisecond

// goroutine is the state of one goroutine while a trace is read.
type goroutine struct {
	isServing bool // a request has begun
	since     time.Duration
	waiting   wait
	calls     int    // to the upstream
	function  string // where it waits, if it serves no client: the outermost of the gateway's functions
	request   traced
}

// readTrace reads the text that `go tool trace -d=parsed` prints: a line for each event, and the stacks of goroutines below it.
func readTrace(text io.Reader) (*execution, error) {
	e := &execution{}
	goroutines := map[string]*goroutine{}
	ranges := map[string]time.Duration{}
	lines := bufio.NewScanner(text)
	var head string
	var stack []string
	for more := true; more; {
		more = lines.Scan()
		if line := lines.Text(); more && !strings.HasPrefix(line, "M=") {
			if strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "\t\t") {
				stack = append(stack, line)
			}
			continue
		}
		if err := e.add(head, stack, goroutines, ranges); err != nil {
			return nil, fmt.Errorf("%w in %q", err, head)
		}
		head, stack = lines.Text(), stack[:0]
	}
	return e, lines.Err()
}

// add adds an event: its line, and its stack from the innermost function on.
func (e *execution) add(line string, stack []string, goroutines map[string]*goroutine, ranges map[string]time.Duration) error {
	fields := strings.Fields(line)
	if len(fields) < 5 || !strings.HasPrefix(fields[4], "Time=") {
		return nil
	}
	nanos, err := strconv.ParseInt(fields[4][len("Time="):], 10, 64)
	if err != nil {
		return err
	}
	at := time.Duration(nanos)
	switch fields[3] {
	case "RangeBegin", "RangeEnd":
		_, name, _ := strings.Cut(line, `Name="`)
		name, _, _ = strings.Cut(name, `"`)
		began, known := ranges[name]
		switch {
		case fields[3] == "RangeBegin":
			ranges[name] = at
		case known && strings.HasPrefix(name, "stop-the-world"):
			e.pauses = append(e.pauses, [2]time.Duration{began, at})
		case known && name == "GC concurrent mark phase":
			e.marks = append(e.marks, [2]time.Duration{began, at})
		}
	case "StateTransition":
		id, isGoroutine := strings.CutPrefix(fields[5], "GoID=")
		if !isGoroutine {
			return nil
		}
		g := goroutines[id]
		if g == nil {
			g = &goroutine{}
			goroutines[id] = g
		}
		was, is, _ := strings.Cut(fields[6], "->")
		_, reason, _ := strings.Cut(line, "Reason=")
		if is == "Waiting" && was != is && len(stack) > 0 {
			g.function = outermost(stack)
		}
		e.move(g, at, was, is, waitOf(reason, stack))
	}
	return nil
}

// move changes the state of a goroutine. A trace also repeats states that do not change.
func (e *execution) move(g *goroutine, at time.Duration, was, is string, next wait) {
	if was == is {
		return
	}
	began, spent := g.since, at-g.since
	g.since = at
	if was == "Running" && spent >= longSlice && began > 0 && !strings.Contains(g.function, "fasthttp") {
		e.others = append(e.others, slice{g.function, began, at})
	}
	if g.isServing {
		switch was {
		case "Waiting":
			g.request.spent[g.waiting] += spent
		case "Runnable":
			g.request.spent[ready] += spent
		default:
			g.request.spent[running] += spent
		}
	}
	switch {
	case was == "Waiting" && g.waiting == idle && !g.isServing:
		g.isServing, g.calls, g.request = true, 0, traced{began: at}
	case is == "Waiting":
		if g.waiting = next; next == upstream {
			g.calls++
		}
		if next != idle || !g.isServing {
			break
		}
		g.isServing = false
		if g.calls != 1 {
			e.skipped++
			break
		}
		g.request.ended = at
		e.requests = append(e.requests, g.request)
	}
}

// waitOf says what a goroutine with this stack waits for.
func waitOf(reason string, stack []string) wait {
	switch {
	case strings.HasPrefix(reason, `"GC`), strings.HasPrefix(reason, `"wait until GC`):
		return collector
	case reason == `"sync"`:
		return lock
	}
	for _, function := range stack {
		switch {
		case strings.Contains(function, "gateway/upstream."):
			return upstream
		case strings.Contains(function, "gateway/quotas/redis."):
			return redis
		case strings.Contains(function, "http1.(*Conn).Await"):
			return idle
		}
	}
	return elsewhere
}

// outermost returns the first function of package petgate that the goroutine has called, or the first one at all.
func outermost(stack []string) string {
	name := stack[len(stack)-1]
	for _, function := range slices.Backward(stack) {
		if strings.Contains(function, "petgate/") || strings.Contains(function, "fasthttp") {
			name = function
			break
		}
	}
	name, _, _ = strings.Cut(strings.TrimSpace(name), " @")
	return name
}

// slowest are the parts of the requests that the tables show, and the name of each.
var slowest = []struct {
	name string
	part float64
}{{"all", 1}, {"slowest 1 %", .01}, {"slowest 0.1 %", .001}}

// writeTail writes what the slowest requests of several traces waited for.
func writeTail(b *strings.Builder, title string, traces []*execution) {
	type counted struct {
		traced
		pause, mark, other bool
	}
	var all []counted
	var pauses, marks, skipped int
	var others []slice
	var longest time.Duration
	for _, e := range traces {
		for _, r := range e.requests {
			busy := slices.ContainsFunc(e.others, func(o slice) bool { return o.began < r.ended && r.began < o.ended })
			all = append(all, counted{r, overlaps(&r, e.pauses), overlaps(&r, e.marks), busy})
		}
		others = append(others, e.others...)
		for _, p := range e.pauses {
			longest = max(longest, p[1]-p[0])
		}
		pauses, marks, skipped = pauses+len(e.pauses), marks+len(e.marks), skipped+e.skipped
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b counted) int { return cmp.Compare(b.took(), a.took()) })
	fmt.Fprintf(b, "### What requests waited for: %s\n\n| µs, mean | %s | %s | %s |\n|---|---|---|---|\n", title, slowest[0].name, slowest[1].name, slowest[2].name)
	row := func(name, format string, figure func(counted) float64) {
		fmt.Fprintf(b, "| %s |", name)
		for _, s := range slowest {
			some := all[:max(1, int(s.part*float64(len(all))))]
			sum := 0.0
			for _, r := range some {
				sum += figure(r)
			}
			fmt.Fprintf(b, " "+format+" |", sum/float64(len(some)))
		}
		b.WriteByte('\n')
	}
	micros := func(d time.Duration) float64 { return float64(d) / 1e3 }
	row("in the gateway", "%.0f", func(r counted) float64 { return micros(r.took()) })
	for w := range waits {
		row(waitNames[w], "%.0f", func(r counted) float64 { return micros(r.spent[w]) })
	}
	share := func(of func(counted) bool) func(counted) float64 {
		return func(r counted) float64 {
			if of(r) {
				return 100
			}
			return 0
		}
	}
	row("% of them while the collector marked", "%.0f", share(func(r counted) bool { return r.mark }))
	row("% of them during a stop of the world", "%.0f", share(func(r counted) bool { return r.pause }))
	row("% of them while a goroutine of the gateway's own ran for 1 ms or more", "%.0f", share(func(r counted) bool { return r.other }))
	fmt.Fprintf(b, "\n%d requests, %d more left out; %d collections; %d stops of the world, the longest of %.0f µs.\n\n",
		len(all), skipped, marks, pauses, micros(longest))
	slices.SortFunc(others, func(a, b slice) int { return cmp.Compare(b.ended-b.began, a.ended-a.began) })
	for _, o := range others[:min(othersMax, len(others))] {
		fmt.Fprintf(b, "- %s ran for %.1f ms\n", o.function, micros(o.ended-o.began)/1e3)
	}
	b.WriteByte('\n')
}

// othersMax is how many slices of the gateway's own goroutines are listed.
const othersMax = 6

func overlaps(r *traced, ranges [][2]time.Duration) bool {
	return slices.ContainsFunc(ranges, func(one [2]time.Duration) bool { return one[0] < r.ended && r.began < one[1] })
}
