package redis

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is what one Redis server says about itself.
type Server struct {
	Address    string `json:"address"`
	Version    string `json:"version"`
	Policy     string `json:"maxmemoryPolicy"`
	AppendOnly bool   `json:"appendOnly"` // it writes changes to a file, so that they survive a restart
	SkewMillis int64  `json:"skewMillis"` // its clock minus this host's
	Error      string `json:"error,omitempty"`
}

// Servers asks every server about itself; on a cluster, every master.
func (r *Decider) Servers(ctx context.Context) (servers []Server) {
	var mu sync.Mutex
	look := func(ctx context.Context, node *redis.Client) error {
		s := describe(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, s)
		return nil
	}
	if err := onMasters(ctx, r.client, look); err != nil {
		servers = append(servers, Server{Error: err.Error()})
	}
	return servers
}

func describe(ctx context.Context, node *redis.Client) Server {
	s := Server{Address: node.Options().Addr}
	if s.Address == "FailoverClient" { // go-redis does not say which server Sentinel has named
		s.Address = "the master of Sentinel"
	}
	info, err := inTime(ctx, func() (string, error) { return node.Info(ctx).Result() })
	if err != nil {
		s.Error = err.Error()
		return s
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "redis_version":
			s.Version = value
		case "maxmemory_policy":
			s.Policy = value
		case "aof_enabled":
			s.AppendOnly = value == "1"
		}
	}
	var begin time.Time
	at, err := inTime(ctx, func() (time.Time, error) {
		begin = time.Now()
		return node.Time(ctx).Result()
	})
	if err != nil {
		s.Error = err.Error()
		return s
	}
	half := time.Since(begin) / 2
	s.SkewMillis = at.Sub(begin.Add(half)).Milliseconds()
	if skew := time.Duration(s.SkewMillis) * time.Millisecond; skew.Abs() <= half {
		s.SkewMillis = 0 // such a difference may come from the round trip alone
	}
	return s
}

// inTime asks again after a timeout until ctx ends: the budget of a request is short, and no
// request waits for these answers.
func inTime[V any](ctx context.Context, ask func() (V, error)) (answer V, err error) {
	for {
		if answer, err = ask(); !isTimeout(err) || ctx.Err() != nil {
			return answer, err
		}
		time.Sleep(time.Millisecond) // a pool whose dials fail repeats their last error at once
	}
}
