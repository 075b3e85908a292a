package main

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// suite is a section that loads the same systems in several ways. Its first load is the plain one.
type suite struct {
	name, title string
	connections int    // of the loads that name no number
	base        string // the system to which the others are compared under the same load
	systems     []system
	loads       []load
}

// load is one way to configure and load the systems of a suite.
type load struct {
	name    string
	as      setup
	traffic traffic
	isIdle  bool     // connections are open and silent
	systems []system // that can do this; nil: all of the suite
}

const (
	suiteDuration = time.Second // of one run
	// longDuration is for 1,000 connections and more, because opening them takes time.
	longDuration = 4 * time.Second
)

var (
	proxies  = []system{nginx, haproxy, inMemory, inRedis, luaRedis}
	petgates = []system{inMemory, inRedis}
	crowded  = []system{nginx, haproxy, inMemory, inRedis}
	holders  = []system{nginx, haproxy, inRedis} // of idle connections
)

// openLoop are the loads that a gateway usually has: far below saturation.
var openLoop = []load{
	{name: "1,000 requests/s", as: setup{log: toFile}, traffic: traffic{connections: someConnections, perSecond: 1000, duration: 2 * time.Second}},
	{name: "4,000 requests/s", as: setup{log: toFile}, traffic: traffic{connections: someConnections, perSecond: 4000}},
	{name: "8,000 requests/s", as: setup{log: toFile}, traffic: traffic{connections: someConnections, perSecond: 8000}},
}

// The suites, in the order of the page.
var suites = []suite{
	{
		name: "rates", title: "Fixed rates, 32 connections, with an access log", base: nginxLuaRedis,
		systems: []system{nginx, luaRedis, inMemory, inRedis, bySocket}, loads: openLoop,
	},
	{
		name: "tls", title: "TLS 1.3 and new connections, 32 at a time", connections: someConnections, base: nginxPlain, systems: proxies,
		loads: []load{
			{name: "kept connections"},
			{name: "a connection for each request", traffic: traffic{field: "Connection: close"}},
			{name: "kept connections, TLS", as: setup{tls: true}},
		},
	},
	{
		name: "log", title: "The access log, 128 connections", connections: manyConnections, base: nginxPlain, systems: proxies,
		loads: []load{
			{name: "no access log"},
			{name: "to a file", as: setup{log: toFile}},
			{name: "to a pipe", as: setup{log: toPipe}},
		},
	},
	{
		name: "connections", title: "Many connections", connections: manyConnections, base: nginxPlain, systems: proxies,
		loads: []load{
			{name: "128, active"},
			{name: "1,000, active", as: setup{crowd: true}, traffic: traffic{connections: 1000}, systems: crowded},
			{name: "5,000, active", as: setup{crowd: true}, traffic: traffic{connections: 5000}, systems: crowded},
			{name: "5,000, idle", traffic: traffic{connections: 5000}, isIdle: true, systems: holders},
			{name: "5,000, idle, TLS", as: setup{tls: true}, traffic: traffic{connections: 5000}, isIdle: true, systems: holders},
		},
	},
	{
		name: "bodies", title: "Responses and request bodies, 32 connections", connections: someConnections, base: nginxPlain, systems: proxies,
		loads: []load{
			{name: "GET, response of 1.2 kB"},
			{name: "GET, response of 100 kB", traffic: traffic{path: "/v1/pets?limit=20&bytes=100000"}},
			{name: "POST, body of 64 kB", traffic: traffic{path: "/v1/pets", bodyBytes: 64_000}},
		},
	},
	{
		name: "redis", title: "Other Redis servers, 128 connections", connections: manyConnections, base: nginxLuaRedis,
		systems: []system{luaRedis, inRedis},
		loads: []load{
			{name: "one Redis, no persistence"},
			{name: string(appendOnly), as: setup{redis: appendOnly}},
			{name: string(cluster), as: setup{redis: cluster}, systems: []system{inRedis}},
		},
	},
	{
		name: "features", title: "Features, 128 connections", connections: manyConnections, base: nginxPlain,
		systems: []system{nginx, inMemory, inRedis},
		loads: []load{
			{name: "defaults: documentation page, usage by operation"},
			{name: "without the documentation page", as: setup{settings: "GATEWAY_DOCS=false"}, systems: petgates},
			{name: "CORS, each request with an Origin", as: setup{cors: true}, traffic: traffic{field: "Origin: " + origin}},
			{name: "traces of 0 %", as: setup{settings: "OTEL_TRACES_SAMPLER_ARG=0"}, systems: petgates},
			{name: "traces of 1 %", as: setup{settings: "OTEL_TRACES_SAMPLER_ARG=0.01"}, systems: petgates},
		},
	},
}

// open starts the systems. Loads that need more descriptors than bench may open are left out.
func (s suite) open(ctx context.Context, l *lab, _ *program) (turn, error) {
	var pairs []pair
	for _, load := range s.loads {
		load.traffic.keysPath, load.traffic.duration = l.keysPath, cmp.Or(load.traffic.duration, suiteDuration)
		load.traffic.connections = cmp.Or(load.traffic.connections, s.connections)
		if load.traffic.connections >= 1000 {
			load.traffic.duration = longDuration
		}
		if need := descriptorsFor(load.traffic.connections); need > l.descriptors {
			l.note(s.name, fmt.Sprintf("Left out: %s. It needs %d descriptors, and the limit is %d.", load.name, need, l.descriptors))
			continue
		}
		if err := l.openStore(ctx, load.as.redis); err != nil {
			return nil, err
		}
		systems := load.systems
		if systems == nil {
			systems = s.systems
		}
		for _, system := range systems {
			next := pair{load: load, system: system}
			if !load.isIdle {
				var err error
				if next.site, err = l.share(ctx, system, load.as); err != nil {
					return nil, err
				}
			}
			pairs = append(pairs, next)
		}
	}
	return func(ctx context.Context) (runs []Run, err error) {
		for _, p := range pairs {
			run, err := p.measure(ctx, l)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.load.name, err)
			}
			run.Load = p.load.name
			runs = append(runs, run)
		}
		return runs, nil
	}, nil
}

// pair is a row of a suite: a system under a load.
type pair struct {
	load
	system
	site *site // nil if connections are idle
}

func (p pair) measure(ctx context.Context, l *lab) (Run, error) {
	if p.isIdle {
		return l.idle(ctx, p.system, p.as, p.traffic)
	}
	return l.measure(ctx, p.system.name, p.traffic, p.site)
}

// descriptorsFor is what a proxy needs: one for each client and one for each upstream connection, and some for itself.
func descriptorsFor(connections int) uint64 { return 2*uint64(connections) + 500 }
