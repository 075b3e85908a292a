package app

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"petgate/gateway/edge"
	"petgate/shared/testkit/must"
)

// The limit of open files bounds the connections, and the log says how to raise it.
func TestFitDescriptors(t *testing.T) {
	var limit syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur > 1<<40 {
		limit.Cur = 1 << 40
	}
	f := func(connections, upstreamConns int) (int, string, error) {
		var log strings.Builder
		cfg := edge.Config{Upstreams: []string{"unix:a"}, ConnectionsMax: connections, UpstreamConnsMax: upstreamConns}
		err := fitDescriptors(&cfg, slog.New(slog.NewTextHandler(&log, nil)))
		return cfg.ConnectionsMax, log.String(), err
	}
	if n, log, err := f(1, 1); n != 1 || log != "" || err != nil {
		t.Errorf("few connections: %d %q %v", n, log, err)
	}
	n, log, err := f(int(limit.Cur), 1)
	if err != nil || n < 1 || n >= int(limit.Cur) || !strings.Contains(log, "ulimit -n") {
		t.Errorf("as many as there are files: %d %q %v", n, log, err)
	}
	if _, _, err := f(1, int(limit.Cur)); err == nil || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("nothing left for clients: %v", err)
	}
}
