package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// lab holds what all rows share: the upstream, the servers, the keys and the location of the programs.
type lab struct {
	dir          string
	bin          string
	upstreamAddr string
	redisAddr    string
	redisProcess *process
	postgres     *postgres
	keysPath     string // a token a line
	keyMapPath   string // the same as a haproxy map
	smallKeyPath string // one key of a tenant that may make one request a day; bans are off where it is used
	bannedPath   string // one key of another such tenant, used where bans are on
	processes    []*process
	sides        []*lab // of a comparison
}

func openLab(ctx context.Context, bin string) (l *lab, err error) {
	dir, err := os.MkdirTemp("/tmp", "petgate-bench-")
	if err != nil {
		return nil, err
	}
	l = &lab{dir: dir, bin: bin}
	l.namePaths()
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.upstreamAddr, err = freeAddress(); err != nil {
		return nil, err
	}
	if _, err = l.launch(nil, l.binary("upstream"), "-listen", l.upstreamAddr); err != nil {
		return nil, err
	}
	if err = l.startRedis(ctx); err != nil {
		return nil, err
	}
	if l.postgres, err = openPostgres(ctx, l); err != nil {
		return nil, err
	}
	return l, awaitListener(ctx, l.upstreamAddr)
}

func (l *lab) namePaths() {
	l.keysPath, l.keyMapPath = filepath.Join(l.dir, "keys"), filepath.Join(l.dir, "keys.map")
	l.smallKeyPath, l.bannedPath = filepath.Join(l.dir, "small"), filepath.Join(l.dir, "banned")
}

func (l *lab) startRedis(ctx context.Context) (err error) {
	if l.redisAddr, err = freeAddress(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(l.redisAddr)
	l.redisProcess, err = l.launch(nil, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", l.dir)
	if err != nil {
		return err
	}
	return awaitListener(ctx, l.redisAddr)
}

// launch starts a program that ends with the lab.
func (l *lab) launch(env []string, name string, args ...string) (*process, error) {
	p, err := launch(env, nil, name, args...)
	if err == nil {
		l.processes = append(l.processes, p)
	}
	return p, err
}

func (l *lab) close() {
	for _, side := range l.sides {
		side.close()
	}
	for _, p := range slices.Backward(l.processes) {
		p.stop()
	}
	_ = os.RemoveAll(l.dir)
}

func (l *lab) binary(name string) string { return filepath.Join(l.bin, name) }

// site is a running system. It stays up for all of its runs and is idle while others are measured.
type site struct {
	system
	listen  string
	process *process
}

// open starts a system and warms it up.
func (l *lab) open(ctx context.Context, s system) (*site, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p, err := s.start(l, listen)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	o := &site{system: s, listen: listen, process: p}
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := awaitListener(ready, listen); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", s.name, err, p.log)
	}
	if _, err := wrk(ctx, listen, 32, time.Second, l.keysPath); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return o, nil
}

func (l *lab) openAll(ctx context.Context, systems []system) (sites []*site, err error) {
	for _, s := range systems {
		o, err := l.open(ctx, s)
		if err != nil {
			return nil, err
		}
		sites = append(sites, o)
	}
	return sites, nil
}

// Run is one measurement: one system under one load for one duration.
type Run struct {
	Section       string
	System        string
	Round         int
	Connections   int
	Requests      int64
	PerSecond     float64
	Percentiles   []int64 `json:",omitempty"` // of latency, in µs
	GatewayMicros float64 // processor time of the gateway per request
	RedisMicros   float64 // and of Redis
	RedisCalls    float64 // per request
	SystemCalls   float64 `json:",omitempty"` // per request; only a comparison counts them
	PostgresShare float64 // processor time of Postgres, in cores
	ResidentMB    float64
	Refused       int64 // responses other than 2xx and 3xx
}

// micros is the processor time per request, of the gateway and of Redis.
func (r Run) micros() float64 { return r.GatewayMicros + r.RedisMicros }

// run loads sites of one system at the same time, each with the given number of connections. Latency is taken from the
// site that finished last.
func (l *lab) run(ctx context.Context, name string, connections int, duration time.Duration, keysPath string, sites ...*site) (Run, error) {
	cpu := func() (sum time.Duration) {
		for _, o := range sites {
			sum += o.process.cpu()
		}
		return sum
	}
	gatewayBefore, redisBefore, postgresBefore := cpu(), l.redisProcess.cpu(), l.postgres.process.cpu()
	callsBefore, err := redisCalls(l.redisAddr)
	if err != nil {
		return Run{}, err
	}
	type outcome struct {
		summary
		err error
	}
	outcomes := make(chan outcome)
	for _, o := range sites {
		go func() {
			s, err := wrk(ctx, o.listen, connections, duration, keysPath)
			outcomes <- outcome{s, err}
		}()
	}
	run := Run{System: name, Connections: connections}
	for range sites {
		o := <-outcomes
		err = errors.Join(err, o.err)
		run.Requests += o.Requests
		run.PerSecond += o.perSecond()
		run.Percentiles, run.Refused = o.Percentiles, run.Refused+o.Non2xx
	}
	if err != nil {
		return Run{}, fmt.Errorf("%s: %w", run.System, err)
	}
	gateway, redis, postgres := cpu()-gatewayBefore, l.redisProcess.cpu()-redisBefore, l.postgres.process.cpu()-postgresBefore
	calls, err := redisCalls(l.redisAddr)
	if err != nil {
		return Run{}, err
	}
	n := float64(run.Requests)
	run.GatewayMicros, run.PostgresShare = float64(gateway.Microseconds())/n, postgres.Seconds()/duration.Seconds()
	if sites[0].redis {
		run.RedisMicros, run.RedisCalls = float64(redis.Microseconds())/n, float64(calls-callsBefore)/n
	}
	for _, o := range sites {
		run.ResidentMB += float64(o.process.resident()) / 1e6
	}
	log.Printf("c=%-4d %-40s %7.0f req/s  %5.1f µs", run.Connections, run.System, run.PerSecond, run.micros())
	return run, nil
}
