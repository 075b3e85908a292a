package redis

import (
	"encoding/binary"
	"sync"

	"github.com/redis/go-redis/v9"

	"petgate/shared/core/id"
)

// servers finds the batcher of a name's server: one for a single Redis, one for each master of a cluster, so that the loss
// of one master does not concern the others' tenants.
type servers struct {
	first    *batcher // of a single Redis; of a cluster, as long as it has not said who serves what
	cluster  *redis.ClusterClient
	mu       sync.RWMutex
	byMaster map[*redis.Client]*batcher
}

// batcher is the batcher of a tenant's server.
func (r *Redis) batcher(t id.Tenant) *batcher {
	if r.servers.cluster == nil {
		return r.servers.first
	}
	return r.batcherOf("{" + t.String() + "}")
}

// batcherOf is the batcher of the server that has the key. go-redis follows the cluster's changes.
func (r *Redis) batcherOf(key string) *batcher {
	s := &r.servers
	// Before the cluster has answered once, MasterForKey would ask it for each request.
	if s.cluster == nil || s.first.down.Load() {
		return s.first
	}
	master, err := s.cluster.MasterForKey(r.closing, key)
	if err != nil {
		return s.first // asking will tell
	}
	s.mu.RLock()
	b := s.byMaster[master]
	s.mu.RUnlock()
	if b == nil {
		b = r.addBatcher(master)
	}
	return b
}

func (r *Redis) addBatcher(master *redis.Client) *batcher {
	s := &r.servers
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.byMaster[master]
	if b == nil {
		b = newBatcher(r, r.probeFor(master))
		if s.byMaster == nil {
			s.byMaster = map[*redis.Client]*batcher{}
		}
		s.byMaster[master] = b
	}
	return b
}

// probeFor returns an ID that no tenant has, because its first bytes are zero, and whose record lies on this master. One in
// as many IDs as there are masters does.
func (r *Redis) probeFor(master *redis.Client) (t id.Tenant) {
	for n := range uint32(1 << 16) {
		binary.BigEndian.PutUint32(t[len(t)-4:], n)
		if other, err := r.servers.cluster.MasterForKey(r.closing, "{"+t.String()+"}"); err != nil || other == master {
			break
		}
	}
	return t
}
