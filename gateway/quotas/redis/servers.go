package redis

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"petgate/shared/core/id"
)

// servers finds the batcher for a name: there is one for a single Redis, and one for each master of
// a cluster, so that the loss of one master does not affect the tenants of the others.
type servers struct {
	first    *batcher // for a single Redis; for a cluster, until it has said which master serves which key
	cluster  *redis.ClusterClient
	mu       sync.RWMutex
	byMaster map[*redis.Client]*batcher
}

// batcher returns the batcher of a tenant's server.
func (r *Redis) batcher(t id.Tenant) *batcher {
	if r.servers.cluster == nil {
		return r.servers.first
	}
	return r.batcherOf("{" + t.String() + "}")
}

// batcherOf returns the batcher of the server that has the key. go-redis tracks the cluster's
// changes.
func (r *Redis) batcherOf(key string) *batcher {
	s := &r.servers
	// Until the cluster has answered once, MasterForKey would ask it for each request.
	if s.cluster == nil || s.first.down.Load() {
		return s.first
	}
	master, err := s.cluster.MasterForKey(r.closing, key)
	if err != nil {
		return s.first // the call itself will find the right server, or fail
	}
	s.mu.RLock()
	b := s.byMaster[master]
	s.mu.RUnlock()
	if b == nil {
		b = r.addBatcher(master)
	}
	return b
}

// all returns the batchers that exist now.
func (s *servers) all() []*batcher {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append(slices.Collect(maps.Values(s.byMaster)), s.first)
}

// addBatcher adds the batcher of a new master.
func (r *Redis) addBatcher(master *redis.Client) *batcher {
	s := &r.servers
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.byMaster[master]
	if b == nil {
		b = newBatcher(r, r.probeFor(master))
		b.ahead.Store(s.first.ahead.Load())
		if s.byMaster == nil {
			s.byMaster = map[*redis.Client]*batcher{}
		}
		s.byMaster[master] = b
		if cause := r.Cause(); cause != nil {
			b.fail(
				cause,
			) // it may have taken over from a server that is down: it is told what this gateway knows before it decides
		}
		r.start(b.watch)
	}
	return b
}

// retire removes a batcher whose server has left the cluster, or has lost the slot by which it is
// probed: its tenants get another batcher. While it has something to send, it stays, and retire
// returns false.
func (r *Redis) retire(b *batcher) bool {
	s := &r.servers
	if b == s.first || b.down.Load() || b.hasUnanswered() {
		return false
	}
	master, err := s.cluster.MasterForKey(r.closing, "{"+b.probing.String()+"}")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.byMaster[master] == b {
		return false
	}
	maps.DeleteFunc(s.byMaster, func(_ *redis.Client, other *batcher) bool { return other == b })
	b.rest()
	return true
}

// probeFor returns an ID whose record is on this master. No tenant has that ID, because its first
// bytes are zero. With n masters, about one ID in n is on this one.
func (r *Redis) probeFor(master *redis.Client) (t id.Tenant) {
	for n := range uint32(1 << 16) {
		binary.BigEndian.PutUint32(t[len(t)-4:], n)
		if other, err := r.servers.cluster.MasterForKey(r.closing, "{"+t.String()+"}"); err != nil || other == master {
			break
		}
	}
	return t
}
