package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// storage is how a Redis keeps what it is told.
type storage string

const (
	volatile   storage = ""
	appendOnly storage = "appendonly yes, appendfsync everysec"
	cluster    storage = "Redis Cluster of three"
	alone      storage = "one gateway alone" // other gateways, which look for lost counts once a second, are not counted
)

// store is one Redis, or the nodes of a cluster.
type store struct {
	addrs     []string
	socket    string // path of the first one's Unix socket
	processes []*process
}

// url is the gateway's setting.
func (s *store) url() string {
	urls := make([]string, len(s.addrs))
	for i, addr := range s.addrs {
		urls[i] = "redis://" + addr
	}
	return strings.Join(urls, ",")
}

func (s *store) cpu() (sum time.Duration) {
	for _, p := range s.processes {
		sum += p.cpu()
	}
	return sum
}

// calls counts the calls of functions and scripts that the servers have received since they started. Commands that a script runs are not
// counted: a call is a trip.
func (s *store) calls() (sum int64, err error) {
	for _, addr := range s.addrs {
		n, err := redisCalls(addr)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// openStore starts a Redis of this kind, if the lab has none.
func (l *lab) openStore(ctx context.Context, kind storage) (err error) {
	if l.redis[kind] != nil {
		return nil
	}
	switch kind {
	case appendOnly:
		l.redis[kind], err = l.startRedis(ctx, "--appendonly", "yes", "--appendfsync", "everysec")
	case cluster:
		l.redis[kind], err = l.startCluster(ctx)
	default:
		l.redis[kind], err = l.startRedis(ctx)
	}
	return err
}

func (l *lab) startRedis(ctx context.Context, settings ...string) (*store, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	dir := filepath.Join(l.dir, "redis-"+port)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	args := []string{"--port", port, "--bind", host, "--unixsocket", socket, "--save", "", "--dir", dir}
	p, err := l.launch(nil, "redis-server", append(args, settings...)...)
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := awaitListener(ready, addr); err != nil {
		return nil, fmt.Errorf("redis-server: %w\n%s", err, p.log)
	}
	return &store{addrs: []string{addr}, socket: socket, processes: []*process{p}}, nil
}

// startCluster starts a cluster of three masters without replicas.
func (l *lab) startCluster(ctx context.Context) (*store, error) {
	all := new(store)
	for range 3 {
		node, err := l.startRedis(ctx, "--cluster-enabled", "yes")
		if err != nil {
			return nil, err
		}
		all.addrs, all.processes = append(all.addrs, node.addrs...), append(all.processes, node.processes...)
	}
	create := append([]string{"--cluster", "create", "--cluster-yes"}, all.addrs...)
	if out, err := exec.CommandContext(ctx, "redis-cli", create...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("redis-cli --cluster create: %w\n%s", err, out)
	}
	return all, nil
}

// redisCalls counts the script calls that one server has received.
func redisCalls(addr string) (int64, error) {
	text, err := redisInfo(addr, "commandstats")
	if err != nil {
		return 0, err
	}
	var calls int64
	for line := range strings.Lines(text) {
		name, values, ok := strings.Cut(line, ":")
		if !ok || name != "cmdstat_evalsha" && name != "cmdstat_eval" && name != "cmdstat_fcall" {
			continue
		}
		count, _, _ := strings.Cut(strings.TrimPrefix(values, "calls="), ",")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("count of calls %q: %w", line, err)
		}
		calls += n
	}
	return calls, nil
}

// redisInfo returns one section of INFO.
func redisInfo(addr, section string) (string, error) { return redisCommand(addr, "INFO", section) }

// redisCommand sends one command whose reply is a bulk string.
func redisCommand(addr string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	request := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	head, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return "", fmt.Errorf("reply to %s: %q", args[0], head)
	}
	text := make([]byte, size)
	_, err = io.ReadFull(reader, text)
	return string(text), err
}

// tripsMeasured is about one second of redis-benchmark.
const tripsMeasured = 20_000

// tripLibrary has the gateway's own function, whose text follows, and its arguments: the rule's parameters, and one demand under limits that no
// run reaches. redis-benchmark cannot send zero bytes, so the function itself packs them.
const tripLibrary = `#!lua name=bench_trip
local take, arguments
local function prepare()
  arguments = {
    struct.pack('<I4I4I4', 250, 240, 86400000), struct.pack('<ddddddd', 1000000000, 1000000000, 1, 0, 0, 0, 1), '', string.rep('\0', 16), '',
  }
%sreturn take
end
redis.register_function('bench_trip', function(keys)
  take = take or prepare()
  return take(keys, arguments)
end)
`

// redisBenchmark measures the latency of the gateway's own function with one connection of Redis's own client.
func redisBenchmark(ctx context.Context, addr string) (Run, error) {
	text, err := os.ReadFile("gateway/quotas/redis/take.lua")
	if err != nil {
		return Run{}, err
	}
	call := []string{"FCALL", "bench_trip", "1", "bench:{trip}"}
	for _, command := range [][]string{{"FUNCTION", "LOAD", "REPLACE", fmt.Sprintf(tripLibrary, text)}, call} {
		if _, err := redisCommand(addr, command...); err != nil {
			return Run{}, err
		}
	}
	_, port, _ := net.SplitHostPort(addr)
	args := append([]string{"-h", "127.0.0.1", "-p", port, "-c", "1", "-n", strconv.Itoa(tripsMeasured), "--csv"}, call...)
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).CombinedOutput()
	if err != nil {
		return Run{}, fmt.Errorf("redis-benchmark: %w\n%s", err, out)
	}
	// "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
	lines, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(lines) != 2 || len(lines[1]) != 8 {
		return Run{}, fmt.Errorf("redis-benchmark printed no figures: %w\n%s", err, out)
	}
	run := Run{System: redisTrip, Connections: 1, Requests: tripsMeasured, Percentiles: make([]int64, len(percentiles))}
	run.PerSecond, err = strconv.ParseFloat(lines[1][1], 64)
	for at, column := range map[int]int{p50: 4, p99: 6} {
		ms, parseErr := strconv.ParseFloat(lines[1][column], 64)
		err = errors.Join(err, parseErr)
		run.Percentiles[at] = int64(math.Round(ms * 1000))
	}
	return run, err
}
