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
	env      *env
	first    *batcher // for a single Redis; for a cluster, until it has said which master serves which key
	cluster  *redis.ClusterClient
	mu       sync.RWMutex
	byMaster map[*redis.Client]*batcher
}

// newServers returns the servers of an env, of which it sets what concerns a cluster.
func newServers(e *env) *servers {
	s := &servers{env: e, byMaster: map[*redis.Client]*batcher{}}
	e.isServedBy = func(t id.Tenant, b *batcher) bool { return s.of(t) == b }
	e.retire = s.retire
	e.reload = func() {
		if s.cluster != nil {
			s.cluster.ReloadState(e.closing)
		}
	}
	s.first = newBatcher(e, id.Tenant{})
	return s
}

// of returns the batcher of a tenant's server.
func (s *servers) of(t id.Tenant) *batcher {
	if s.cluster == nil {
		return s.first
	}
	return s.ofKey("{" + t.String() + "}")
}

// ofKey returns the batcher of the server that has the key. go-redis tracks the cluster's changes.
func (s *servers) ofKey(key string) *batcher {
	// Until the cluster has answered once, MasterForKey would ask it for each request.
	if s.cluster == nil || s.first.down.Load() {
		return s.first
	}
	master, err := s.cluster.MasterForKey(s.env.closing, key)
	if err != nil {
		return s.first // the call itself will find the right server, or fail
	}
	s.mu.RLock()
	b := s.byMaster[master]
	s.mu.RUnlock()
	if b == nil {
		b = s.add(master)
	}
	return b
}

// all returns the batchers that exist now.
func (s *servers) all() []*batcher {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append(slices.Collect(maps.Values(s.byMaster)), s.first)
}

// add adds the batcher of a new master.
func (s *servers) add(master *redis.Client) *batcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.byMaster[master]
	if b != nil {
		return b
	}
	b = newBatcher(s.env, s.probeFor(master))
	b.ahead.Store(s.first.ahead.Load())
	s.byMaster[master] = b
	if cause := s.env.outage.why(); cause != nil {
		// It may have taken over from a server that is down: it is told what this gateway knows
		// before it decides.
		b.fail(cause)
	}
	s.env.tasks.Go(b.watch)
	return b
}

// retire removes a batcher whose server has left the cluster, or has lost the slot by which it is
// probed: its tenants get another batcher. While it has something to send, it stays, and retire
// returns false.
func (s *servers) retire(b *batcher) bool {
	if b == s.first || b.down.Load() || !b.unanswered.isEmpty() {
		return false
	}
	master, err := s.cluster.MasterForKey(s.env.closing, "{"+b.probing.String()+"}")
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
func (s *servers) probeFor(master *redis.Client) (t id.Tenant) {
	for n := range uint32(1 << 16) {
		binary.BigEndian.PutUint32(t[len(t)-4:], n)
		other, err := s.cluster.MasterForKey(s.env.closing, "{"+t.String()+"}")
		if err != nil || other == master {
			break
		}
	}
	return t
}
