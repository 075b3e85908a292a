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
	p50 = 2
	p99 = 6
)

// summary is what load.lua prints.
type summary struct {
	Requests, Micros, Non2xx, Broken int64
	Percentiles                      []int64 // of latency, in µs
}

func (s summary) perSecond() float64 { return float64(s.Requests) / (float64(s.Micros) / 1e6) }

// wrk loads addr with the keys of a file; without a file the requests carry no key. The command starts with wrapper, which
// may be empty.
func wrk(ctx context.Context, addr string, connections int, duration time.Duration, keysPath string, wrapper ...string) (summary, error) {
	args := append(wrapper, "wrk", "-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%.0fs", duration.Seconds()),
		"-s", "bench/load.lua", "http://"+addr)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if keysPath != "" {
		cmd.Env = append(os.Environ(), "KEYS="+keysPath)
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
