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
	base        string // the system to which the others are compared under the same load
	systems     []system
	loads       []load
}

// load is one way to configure and load the systems of a suite.
type load struct {
	name    string
	as      setup
	traffic traffic
	isIdle  bool // connections are open and silent
}

// suiteDuration is that of one run.
const suiteDuration = time.Second

// openLoop are the loads that a gateway usually has: far below saturation.
var openLoop = []load{
	{
		name:    "1,000 requests/s",
		as:      setup{hasLog: true},
		traffic: traffic{connections: someConnections, perSecond: 1000, duration: 2 * time.Second},
	},
	{
		name:    "4,000 requests/s",
		as:      setup{hasLog: true},
		traffic: traffic{connections: someConnections, perSecond: 4000},
	},
	{
		name:    "8,000 requests/s",
		as:      setup{hasLog: true},
		traffic: traffic{connections: someConnections, perSecond: 8000},
	},
}

// The suites, in the order of the page.
var suites = []suite{
	{
		name: "rates", title: "Fixed rates, 32 connections, with an access log", base: nginxLuaRedis,
		systems: []system{nginx, luaRedis, inMemory, inRedis, oneThread, bySocket}, loads: openLoop,
	},
	{
		name: "idle", title: "Memory of idle connections", base: nginxPlain, systems: []system{nginx, haproxy, inRedis},
		loads: []load{
			{name: "5,000, idle", traffic: traffic{connections: 5000}, isIdle: true},
			{name: "5,000, idle, TLS", as: setup{tls: true}, traffic: traffic{connections: 5000}, isIdle: true},
		},
	},
}

// open starts the systems. Loads that need more descriptors than bench may open are left out.
func (s suite) open(ctx context.Context, l *lab, _ *program) (turn, error) {
	var pairs []pair
	for _, load := range s.loads {
		load.traffic.keysPath, load.traffic.duration = l.keysPath, cmp.Or(load.traffic.duration, suiteDuration)
		if need := descriptorsFor(load.traffic.connections); need > l.descriptors {
			l.note(
				s.name,
				fmt.Sprintf("Left out: %s. It needs %d descriptors, and the limit is %d.", load.name, need,
					l.descriptors),
			)
			continue
		}
		for _, system := range s.systems {
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

// descriptorsFor is what a proxy needs: one for each client and one for each upstream connection,
// and some for itself.
func descriptorsFor(connections int) uint64 { return 2*uint64(connections) + 500 }
