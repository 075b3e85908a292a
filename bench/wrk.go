package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// percentiles are the ones that load.lua prints, in its order.
var percentiles = []float64{10, 25, 50, 75, 90, 95, 99, 99.9}

// Indexes in percentiles.
const (
	p50  = 2
	p99  = 6
	p999 = 7
)

// summary is what load.lua prints.
type summary struct {
	Requests, Micros, Non2xx, Broken int64
	Percentiles                      []int64 // of latency, in µs
}

func (s summary) perSecond() float64 { return float64(s.Requests) / (float64(s.Micros) / 1e6) }

// traffic is what clients do.
type traffic struct {
	connections int
	// perSecond are the requests that arrive, whatever the system does. 0: each connection makes
	// the next request at once.
	perSecond float64
	duration  time.Duration
	keysPath  string // without it, requests carry no key
	path      string // and query; empty: a list of 20
}

// load loads a site.
func (t traffic) load(ctx context.Context, o *site) (summary, error) {
	if t.perSecond > 0 {
		return arrivals(ctx, o, t)
	}
	return wrk(ctx, o, t)
}

// wrk loads a site. The command starts with wrapper, which may be empty.
func wrk(ctx context.Context, o *site, t traffic, wrapper ...string) (summary, error) {
	scheme := "http://"
	if o.as.tls {
		scheme = "https://"
	}
	args := append(wrapper, "wrk", "-t1", fmt.Sprintf("-c%d", t.connections),
		fmt.Sprintf("-d%.0fs", t.duration.Seconds()), "--timeout", "10s", "-s", "bench/load.lua", scheme+o.listen)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = os.Environ()
	for name, value := range map[string]string{"KEYS": t.keysPath, "PATH_QUERY": t.path} {
		if value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		return summary{}, fmt.Errorf("wrk: %w\n%s", err, text)
	}
	_, line, ok := strings.Cut(string(text), "\n{")
	var s summary
	if err := json.Unmarshal([]byte("{"+line), &s); !ok || err != nil {
		return summary{}, fmt.Errorf("wrk printed no summary: %w\n%s", err, text)
	}
	if s.Requests == 0 || s.Broken > 0 || len(s.Percentiles) != len(percentiles) {
		return summary{}, fmt.Errorf("%d requests, %d of them broken\n%s", s.Requests, s.Broken, text)
	}
	return s, nil
}
