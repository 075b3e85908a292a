package main

import (
	"context"
	"path/filepath"
)

// section is a group of rows that are measured together.
type section struct {
	name string
	open func(ctx context.Context, l *lab, p *program) (turn, error) // starts its systems
}

// turn runs every row of a section once.
type turn func(ctx context.Context) ([]Run, error)

// allSections lists the sections in the order of the page.
func allSections() []section {
	all := []section{{"gateways", gateways}}
	for _, s := range suites {
		all = append(all, section{s.name, s.open})
	}
	return append(all, section{"refusals", refusals}, section{"pets", petService})
}

// Names of rows that the summary refers to.
const (
	nginxPlain      = "nginx, plain proxy"
	haproxyPlain    = "haproxy, plain proxy"
	policyIsOff     = "Petgate, policy off"
	petgateMemory   = "Petgate, quotas in memory"
	petgateRedis    = "Petgate, quotas in Redis"
	nginxLuaRedis   = "nginx + Lua + Redis"
	haproxyTables   = "haproxy + stick tables (one node)"
	admitted        = "admitted"
	overQuota       = "over its quota (429), bans off"
	banned          = "over its quota, then banned (429)"
	keyless         = "without a key (401)"
	pgbenchRow      = "pgbench -M prepared, the query of a list"
	pgbenchGetRow   = "pgbench -M prepared, one pet by id"
	petsvcGetRow    = "petsvc, one pet by id, 8 clients"
	petsvcFewRow    = "petsvc, 8 clients"
	petsvcRow       = "petsvc, 32 clients"
	chainRow        = "gateway, quotas in memory, before petsvc (unix socket), 32 clients"
	chainRedisRow   = "gateway, quotas in Redis, before petsvc (unix socket), 32 clients"
	manyConnections = 128
	someConnections = 32
)

// gateways is the main table.
func gateways(ctx context.Context, l *lab, p *program) (turn, error) {
	sites, err := l.openAll(ctx, p.rows, setup{hasLog: true})
	return func(ctx context.Context) (runs []Run, err error) {
		for _, connections := range p.connections {
			for _, o := range sites {
				run, err := l.run(ctx, o.name, connections, p.duration, l.keysPath, o)
				if err != nil {
					return nil, err
				}
				runs = append(runs, run)
			}
		}
		return runs, nil
	}, err
}

// refusals loads the gateway with requests that it refuses.
func refusals(ctx context.Context, l *lab, p *program) (turn, error) {
	strict, err := l.open(ctx, inRedis, setup{})
	if err != nil {
		return nil, err
	}
	if l.redis[alone], err = l.startRedis(ctx); err != nil {
		return nil, err
	}
	lenient, err := l.open(ctx, system{start: petgate("redis", "GATEWAY_BAN_AFTER=0"), redis: true},
		setup{redis: alone})
	return func(ctx context.Context) (runs []Run, err error) {
		for _, row := range []struct {
			name string
			site *site
			keys string
		}{
			{admitted, strict, l.keysPath},
			{overQuota, lenient, l.smallKeyPath},
			{banned, strict, l.bannedPath},
			{keyless, strict, ""},
		} {
			run, err := l.run(ctx, row.name, manyConnections, p.duration, row.keys, row.site)
			if err != nil {
				return nil, err
			}
			runs = append(runs, run)
		}
		return runs, nil
	}, err
}

// petService compares lists over HTTP with pgbench on as many database connections, and the whole
// chain with the pet service alone.
func petService(ctx context.Context, l *lab, p *program) (turn, error) {
	service, err := l.open(ctx, system{name: petsvcRow, start: petsvc}, setup{})
	if err != nil {
		return nil, err
	}
	near := "unix:" + filepath.Join(l.dir, "petsvc") // a second pet service, for the gateways of this section
	if _, err := petsvc(l, near, setup{}); err != nil {
		return nil, err
	}
	chains, err := l.openAll(ctx, []system{
		{name: chainRow, start: petgate("memory", "GATEWAY_UPSTREAMS="+near)},
		{name: chainRedisRow, start: petgate("redis", "GATEWAY_UPSTREAMS="+near), redis: true},
	}, setup{})
	return func(ctx context.Context) (runs []Run, err error) {
		for _, of := range []struct {
			name, path string
			clients    int
			query      string // without the pet service
		}{
			{pgbenchRow, "", databaseConnections, listQuery},
			{petsvcFewRow, "", databaseConnections, ""},
			{petsvcRow, "", someConnections, ""},
			{pgbenchGetRow, "", databaseConnections, getQuery},
			{petsvcGetRow, "/v1/pets/5", databaseConnections, ""},
		} {
			run := Run{System: of.name, Connections: of.clients}
			if of.query == "" {
				run, err = l.measure(ctx, of.name,
					traffic{connections: of.clients, duration: p.duration, path: of.path}, service)
			} else {
				before := l.postgres.process.cpu()
				run.PerSecond, err = l.postgres.pgbench(ctx, l, of.query, of.clients, p.duration)
				run.PostgresShare = (l.postgres.process.cpu() - before).Seconds() / p.duration.Seconds()
			}
			if err != nil {
				return nil, err
			}
			runs = append(runs, run)
		}
		for _, chain := range chains {
			whole, err := l.run(ctx, chain.name, someConnections, p.duration, l.keysPath, chain)
			if err != nil {
				return nil, err
			}
			runs = append(runs, whole)
		}
		return runs, nil
	}, err
}
