package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// lab holds what all rows share: the upstream, the servers, the keys and the location of the
// programs.
type lab struct {
	dir          string
	bin          string
	upstreamAddr string
	redis        map[clients]*store
	postgres     *postgres
	keysPath     string // a token a line
	keyMapPath   string // the same as a haproxy map
	smallKeyPath string // one key of a tenant that may make one request a day; bans are off where it is used
	bannedPath   string // one key of another such tenant, used where bans are on
	certificate  string // PEM files of a certificate for 127.0.0.1, of its key, and of both
	privateKey   string
	identity     string
	descriptors  uint64              // that a program may have open
	notes        map[string][]string // of sections, for the page
	processes    []*process
	sides        []*lab             // of a comparison
	shared       map[standing]*site // the sites that sections share
}

// standing is what tells one site from another.
type standing struct {
	name string
	as   setup
}

func openLab(ctx context.Context, bin string) (l *lab, err error) {
	dir, err := os.MkdirTemp("/tmp", "petgate-bench-")
	if err != nil {
		return nil, err
	}
	l = newLab(dir, bin)
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.descriptors, err = raiseDescriptors(); err != nil {
		return nil, err
	}
	if l.upstreamAddr, err = freeAddress(); err != nil {
		return nil, err
	}
	if _, err = l.launch(nil, l.binary("upstream"), "-listen", l.upstreamAddr); err != nil {
		return nil, err
	}
	if l.redis[everyone], err = l.startRedis(ctx); err != nil {
		return nil, err
	}
	if err = l.createCertificate(); err != nil {
		return nil, err
	}
	if l.postgres, err = openPostgres(ctx, l); err != nil {
		return nil, err
	}
	return l, awaitListener(ctx, l.upstreamAddr)
}

func newLab(dir, bin string) *lab {
	in := func(name string) string { return filepath.Join(dir, name) }
	return &lab{
		dir:          dir,
		bin:          bin,
		keysPath:     in("keys"),
		keyMapPath:   in("keys.map"),
		smallKeyPath: in("small"),
		bannedPath:   in("banned"),
		certificate:  in("certificate.pem"), privateKey: in("key.pem"), identity: in("identity.pem"),
		redis: map[clients]*store{}, shared: map[standing]*site{}, notes: map[string][]string{},
	}
}

// launch starts a program that ends with the lab.
func (l *lab) launch(env []string, name string, args ...string) (*process, error) {
	return l.launchTo(nil, env, name, args...)
}

// launchTo is launch for a program whose standard output goes to a file.
func (l *lab) launchTo(stdout *os.File, env []string, name string, args ...string) (*process, error) {
	p, err := launch(stdout, env, nil, name, args...)
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
	as      setup
	listen  string
	process *process
}

// readyWithin is how long a program may take until it listens.
const readyWithin = 20 * time.Second

// open starts a system and warms it up.
func (l *lab) open(ctx context.Context, s system, as setup) (*site, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p, err := s.start(l, listen, as)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	o := &site{system: s, as: as, listen: listen, process: p}
	ready, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := errors.Join(awaitListener(ready, listen), l.awaitResponse(o)); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", s.name, err, p.log)
	}
	warmUp := traffic{connections: someConnections, duration: time.Second, keysPath: l.keysPath}
	if _, err := wrk(ctx, o, warmUp); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", s.name, err, p.log)
	}
	return o, nil
}

// share returns the site of this system and setup. It opens one if there is none.
func (l *lab) share(ctx context.Context, s system, as setup) (o *site, err error) {
	which := standing{s.name, as}
	if l.shared[which] == nil {
		l.shared[which], err = l.open(ctx, s, as)
	}
	return l.shared[which], err
}

// note adds a sentence to a section of the page.
func (l *lab) note(section, sentence string) { l.notes[section] = append(l.notes[section], sentence) }

// end stops a site before the lab ends.
func (l *lab) end(o *site) {
	l.processes = slices.DeleteFunc(l.processes, func(p *process) bool { return p == o.process })
	o.process.stop()
}

func (l *lab) openAll(ctx context.Context, systems []system, as setup) (sites []*site, err error) {
	for _, s := range systems {
		o, err := l.share(ctx, s, as)
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
	Load          string // of a section that loads its systems in several ways
	System        string
	Round         int
	Connections   int
	Requests      int64
	PerSecond     float64
	Percentiles   []int64 // of latency, in µs
	GatewayMicros float64 // processor time of the gateway per request
	RedisMicros   float64 // and of Redis
	RedisCalls    float64 // per request
	SystemCalls   float64 // per request; only a comparison counts them
	PostgresShare float64 // processor time of Postgres, in cores
	ResidentMB    float64
	IdleKB        float64 // memory per idle connection
	Refused       int64   // responses other than 2xx and 3xx
}

// micros is the processor time per request, of the gateway and of Redis.
func (r Run) micros() float64 { return r.GatewayMicros + r.RedisMicros }

// run loads sites of one system at the same time with wrk, each with the given number of
// connections.
func (l *lab) run(
	ctx context.Context, name string, connections int, duration time.Duration, keysPath string, sites ...*site,
) (Run, error) {
	t := traffic{connections: connections, duration: duration, keysPath: keysPath}
	return l.measure(ctx, name, t, sites...)
}

// measure takes the figures of sites of one system that are loaded at the same time. Latency is
// taken from the site that finished last.
func (l *lab) measure(ctx context.Context, name string, t traffic, sites ...*site) (Run, error) {
	cpu := func() (sum time.Duration) {
		for _, o := range sites {
			sum += o.process.cpu()
		}
		return sum
	}
	redis := l.redis[sites[0].as.redis]
	gatewayBefore, redisBefore, postgresBefore := cpu(), redis.cpu(), l.postgres.process.cpu()
	callsBefore, err := redis.calls()
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
			s, err := t.load(ctx, o)
			outcomes <- outcome{s, err}
		}()
	}
	run := Run{System: name, Connections: t.connections}
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
	gatewayTook := cpu() - gatewayBefore
	redisTook := redis.cpu() - redisBefore
	postgresTook := l.postgres.process.cpu() - postgresBefore
	calls, err := redis.calls()
	if err != nil {
		return Run{}, err
	}
	n := float64(run.Requests)
	run.GatewayMicros = float64(gatewayTook.Microseconds()) / n
	run.PostgresShare = postgresTook.Seconds() / t.duration.Seconds()
	if sites[0].redis {
		run.RedisMicros = float64(redisTook.Microseconds()) / n
		run.RedisCalls = float64(calls-callsBefore) / n
	}
	for _, o := range sites {
		run.ResidentMB += float64(o.process.resident()) / 1e6
	}
	log.Printf("c=%-4d %-40s %7.0f req/s  %5.1f µs, %5.1f of them Redis", run.Connections, run.System, run.PerSecond,
		run.micros(), run.RedisMicros)
	return run, nil
}
