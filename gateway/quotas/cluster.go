package quotas

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/core/id"
)

const (
	slotsCount = 16384 // hash slots of a Redis Cluster (Redis Cluster specification, "Key distribution model")
	// slotsEvery is how often the cluster is asked who serves which slot. In between go-redis follows redirections.
	slotsEvery = 5 * time.Second
)

// lanes says which lane serves a tenant: one for a single Redis; one for each master of a cluster, so that the loss
// of one is nothing to the others' tenants.
type lanes struct {
	only     *lane
	bySlot   *[slotsCount]*lane // nil until a cluster has said who serves what
	byMaster map[string]*lane
}

func (l *Limiter) lane(t id.Tenant) *lane {
	all := l.lanes.Load()
	if all.bySlot == nil {
		return all.only
	}
	var text [32]byte
	return all.bySlot[slotOf(t.AppendTo(text[:0]))]
}

// laneOf is the lane of a name that has no braces.
func (l *Limiter) laneOf(name string) *lane {
	all := l.lanes.Load()
	if all.bySlot == nil {
		return all.only
	}
	return all.bySlot[slotOf([]byte(name))]
}

// followSlots keeps the lanes on the cluster's masters until Close.
func (l *Limiter) followSlots(cluster *redis.ClusterClient) {
	tick := time.NewTicker(slotsEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.closing.Done():
			return
		case <-tick.C:
			l.mapSlots(l.closing, cluster)
		}
	}
}

// mapSlots asks the cluster who serves which slot. Without an answer, or with a Redis before 7.0, all stays as it is.
// A master's lane keeps its state while it serves anything; one that serves nothing any more is let go once it has
// recovered or the Limiter is closed.
func (l *Limiter) mapSlots(ctx context.Context, cluster *redis.ClusterClient) {
	ctx, cancel := context.WithTimeout(ctx, 4*l.config.Budget)
	defer cancel()
	cover, err := cluster.ClusterShards(ctx).Result()
	if err != nil {
		return
	}
	before := l.lanes.Load()
	next := &lanes{only: before.only, bySlot: new([slotsCount]*lane), byMaster: make(map[string]*lane)}
	for _, shard := range cover {
		isMaster := func(n redis.Node) bool { return n.Role == "master" }
		master := slices.IndexFunc(shard.Nodes, isMaster)
		if master < 0 || len(shard.Slots) == 0 {
			continue
		}
		name := shard.Nodes[master].ID
		n := before.byMaster[name]
		if n == nil {
			n = newLane(l, probeFor(shard.Slots[0]))
		}
		next.byMaster[name] = n
		for _, r := range shard.Slots {
			for slot := r.Start; slot <= r.End && slot < slotsCount; slot++ {
				next.bySlot[slot] = n
			}
		}
	}
	for slot, n := range next.bySlot {
		if n == nil { // served by nobody: asking will tell
			next.bySlot[slot] = next.only
		}
	}
	l.lanes.Store(next)
}

// probeFor returns a tenant that nobody is, as all its first bytes are zero, and whose slot is one of these.
func probeFor(slots redis.SlotRange) (t id.Tenant) {
	for n := uint32(0); ; n++ {
		binary.BigEndian.PutUint32(t[len(t)-4:], n)
		if slot := int64(slotOf(t.AppendTo(nil))); slot >= slots.Start && slot <= slots.End {
			return t
		}
	}
}

// slotOf is the slot of a name, or of what stands between its braces: its CRC-16/XMODEM.
func slotOf(name []byte) int {
	var crc uint16
	for _, b := range name {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return int(crc % slotsCount)
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
