package main

import (
	"cmp"
	"context"
	"time"
)

// distance is how long a round trip takes to the servers behind a system. Zero is this machine.
type distance struct{ redis, upstream time.Duration }

var (
	far     = distance{redis: 500 * time.Microsecond, upstream: 2 * time.Millisecond}
	further = distance{redis: 2 * time.Millisecond, upstream: 4 * time.Millisecond}
)

// link is a relay to an address.
type link struct {
	addr string
	trip time.Duration
}

// openRelays starts the relays of a setup, if the lab has none.
func (l *lab) openRelays(ctx context.Context, as setup) error {
	links := []link{{l.upstreamAddr, as.away.upstream}}
	for _, addr := range l.redis[as.redis].addrs {
		links = append(links, link{addr, as.away.redis})
	}
	for _, k := range links {
		if k.trip == 0 || l.relays[k] != "" {
			continue
		}
		listen, err := freeAddress()
		if err != nil {
			return err
		}
		if _, err := l.launch(nil, l.binary("distance"), "-listen", listen, "-to", k.addr, "-delay", (k.trip / 2).String()); err != nil {
			return err
		}
		if err := awaitListener(ctx, listen); err != nil {
			return err
		}
		l.relays[k] = listen
	}
	return nil
}

// upstreamOf is the address at which a system of this setup reaches the upstream.
func (l *lab) upstreamOf(as setup) string {
	return cmp.Or(l.relays[link{l.upstreamAddr, as.away.upstream}], l.upstreamAddr)
}

// redisOf is the Redis of a setup, at the addresses at which the system reaches it.
func (l *lab) redisOf(as setup) *store {
	reached := &store{processes: l.redis[as.redis].processes}
	for _, addr := range l.redis[as.redis].addrs {
		reached.addrs = append(reached.addrs, cmp.Or(l.relays[link{addr, as.away.redis}], addr))
	}
	return reached
}

// withoutRedis names the same program without Redis.
var withoutRedis = map[string]string{petgateRedis: petgateMemory, nginxLuaRedis: nginxPlain}

// tripsAdded is a column with what Redis adds to p50 in the same round. The unit is the nominal trip: the work of the gateway and of
// Redis is a part of what Redis adds, and not of the unit.
func (s suite) tripsAdded() column {
	trips := map[string]time.Duration{}
	for _, load := range s.loads {
		trips[load.name] = load.as.away.redis
	}
	return column{"trips that Redis adds to p50", "", func(r Result, at row) spread {
		base, trip := at, float64(trips[at.load].Microseconds())
		base.system = withoutRedis[at.system]
		var values []float64
		for a, b := range byRound(r.runs(at), r.runs(base)) {
			if trip > 0 {
				values = append(values, (latency(p50)(a)-latency(p50)(b))/trip)
			}
		}
		return spreadOf(values)
	}}
}
