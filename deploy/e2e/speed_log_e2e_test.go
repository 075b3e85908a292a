//go:build e2e

package e2e_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
)

// What the access log costs: gateways without it, with a file and with a pipe that is read take turns. Each request is a line, or it is
// counted as lost.
func TestSpeedOfAccessLog(t *testing.T) {
	f := fleet.Start(t, fleet.Spec{Redis: testkit.StartRedis(t).URL, Upstreams: fleet.FixedUpstream(t)})
	request := fleet.GetPets(f.NewTenant("acme", fleet.Unlimited...).Token)
	file, err := os.Create(filepath.Join(t.TempDir(), "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer pipe.Close()
	var throughPipe lineCounter
	go func() { _, _ = io.Copy(&throughPipe, reader) }()

	logging := func(to *os.File) *fleet.Program {
		g := f.AddGateway()
		g.Stop()
		g.LogTo = to
		g.Start(t)
		return g
	}
	off := &contender{name: "no access log", gateway: f.AddGateway("GATEWAY_ACCESS_LOG=false")}
	toFile := &contender{name: "access log to a file", gateway: logging(file)}
	toPipe := &contender{name: "access log to a pipe", gateway: logging(pipe)}
	takeTurns(t, request, []*contender{off, toFile, toPipe})

	check := func(c *contender, count func() int64) {
		t.Helper()
		testkit.Eventually(t, fleet.ReplyWithin, c.name+": each request is a line or lost", func() bool {
			lost := c.gateway.Metric(t, "petgate_gateway_access_log_dropped_total", "")
			return count()+int64(lost) == int64(c.answered)
		})
	}
	check(toPipe, throughPipe.Load)
	check(toFile, func() int64 {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return int64(bytes.Count(text, []byte{'\n'}))
	})
	// The product's sockets send without write(2), which the kernel counts for a process.
	before := countCalls(t, toFile.gateway)
	n := len(sendTimed(t, toFile.gateway, request, time.Second))
	t.Logf("figure: access log to a file: %.0f lines a write", float64(n)/(countCalls(t, toFile.gateway).writes-before.writes))
}

// lineCounter counts the lines that are written to it.
type lineCounter struct{ atomic.Int64 }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.Add(int64(bytes.Count(p, []byte{'\n'})))
	return len(p), nil
}
