package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
)

// keyCount is how many keys, each of a tenant of its own, the load draws from.
const keyCount = 1000

// lab is what all rows share: the upstream, Redis, the keys and where the programs are.
type lab struct {
	dir          string
	bin          string
	upstreamAddr string
	redisAddr    string
	redisProcess *process
	keysPath     string // a token a line
	keyMapPath   string // the same as a haproxy map
	databaseURL  string
	smallKeyPath string // one key of a tenant that may make one request a day
	processes    []*process
}

func openLab(ctx context.Context, bin string) (l *lab, err error) {
	dir, err := os.MkdirTemp("", "petgate-bench-")
	if err != nil {
		return nil, err
	}
	l = &lab{
		dir: dir, bin: bin, databaseURL: "sqlite:" + filepath.Join(dir, "bench.db"),
		keysPath: filepath.Join(dir, "keys"), keyMapPath: filepath.Join(dir, "keys.map"), smallKeyPath: filepath.Join(dir, "small"),
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.upstreamAddr, err = freeAddress(); err != nil {
		return nil, err
	}
	if l.redisAddr, err = freeAddress(); err != nil {
		return nil, err
	}
	upstream, err := launch(nil, l.binary("upstream"), "-listen", l.upstreamAddr)
	if err != nil {
		return nil, err
	}
	l.processes = append(l.processes, upstream)
	_, port, _ := net.SplitHostPort(l.redisAddr)
	l.redisProcess, err = launch(nil, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir)
	if err != nil {
		return nil, err
	}
	l.processes = append(l.processes, l.redisProcess)
	for _, addr := range []string{l.upstreamAddr, l.redisAddr} {
		if err := awaitListener(ctx, addr); err != nil {
			return nil, err
		}
	}
	return l, l.createKeys(ctx)
}

func (l *lab) close() {
	for _, p := range l.processes {
		p.stop()
	}
	_ = os.RemoveAll(l.dir)
}

func (l *lab) binary(name string) string { return filepath.Join(l.bin, name) }

// createKeys fills the key tables with tenants whose limits no run reaches, and one that is refused from its second
// request on.
func (l *lab) createKeys(ctx context.Context) error {
	db, err := database.OpenOrCreate(ctx, l.databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Migrate(ctx, keystore.Migrations); err != nil {
		return err
	}
	store := keystore.New(db, time.Now, rand.Reader, "bench")
	var tokens []string
	for i := range keyCount {
		token, err := newKey(ctx, store, fmt.Sprintf("tenant-%d", i), plan.Limits{Minute: plan.LimitMax, Day: plan.LimitMax})
		if err != nil {
			return err
		}
		tokens = append(tokens, token)
	}
	small, err := newKey(ctx, store, "small", plan.Limits{Minute: 1, Day: 1})
	if err != nil {
		return err
	}
	keys := strings.Join(tokens, "\n") + "\n"
	return errors.Join(
		os.WriteFile(l.keysPath, []byte(keys), 0o600),
		os.WriteFile(l.keyMapPath, []byte(strings.ReplaceAll(keys, "\n", " 1\n")), 0o600),
		os.WriteFile(l.smallKeyPath, []byte(small+"\n"), 0o600),
	)
}

func newKey(ctx context.Context, store *keystore.Store, name string, limits plan.Limits) (token string, err error) {
	tenant, _, err := store.CreateTenant(ctx, keystore.TenantSpec{Name: name, Plan: "enterprise", Override: limits})
	if err != nil {
		return "", err
	}
	_, token, _, err = store.CreateKey(ctx, keystore.KeySpec{
		Tenant: tenant.ID, Name: "bench", Environment: apikey.Live, Scopes: apikey.AllScopes,
	})
	return token, err
}

// measure starts a system, warms it up, loads it once and stops it.
func (l *lab) measure(ctx context.Context, s system, connections int, duration time.Duration) (Run, error) {
	return l.load(ctx, s, connections, duration, l.keysPath)
}

// load is measure with the keys of one file; without a file the requests carry no key.
func (l *lab) load(ctx context.Context, s system, connections int, duration time.Duration, keysPath string) (Run, error) {
	listen, err := freeAddress()
	if err != nil {
		return Run{}, err
	}
	processes, err := s.start(l, listen)
	if err != nil {
		return Run{}, err
	}
	defer func() {
		for _, p := range processes {
			p.stop()
		}
	}()
	ready, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := awaitListener(ready, listen); err != nil {
		return Run{}, fmt.Errorf("%w\n%s", err, processes[0].log)
	}
	if _, err := l.wrk(ctx, listen, connections, time.Second, keysPath); err != nil {
		return Run{}, err
	}

	gatewayBefore, redisBefore := total(processes), l.redisProcess.cpu()
	callsBefore, err := redisCalls(l.redisAddr)
	if err != nil {
		return Run{}, err
	}
	w, err := l.wrk(ctx, listen, connections, duration, keysPath)
	if err != nil {
		return Run{}, err
	}
	gateway, redis := total(processes)-gatewayBefore, l.redisProcess.cpu()-redisBefore
	calls, err := redisCalls(l.redisAddr)
	if err != nil {
		return Run{}, err
	}
	n := float64(w.Requests)
	run := Run{
		System: s.name, Connections: connections, Requests: w.Requests,
		PerSecond: n / (float64(w.Micros) / 1e6), P50Micros: w.P50, P99Micros: w.P99,
		GatewayMicros: float64(gateway.Microseconds()) / n, Refused: w.Non2xx,
	}
	if s.redis {
		run.RedisMicros, run.RedisCalls = float64(redis.Microseconds())/n, float64(calls-callsBefore)/n
	}
	for _, p := range processes {
		run.ResidentMB += float64(p.resident()) / 1e6
	}
	return run, nil
}

func total(processes []*process) (sum time.Duration) {
	for _, p := range processes {
		sum += p.cpu()
	}
	return sum
}

// summary is what load.lua prints.
type summary struct {
	Requests, Micros, P50, P99, Non2xx, Broken int64
}

func (l *lab) wrk(ctx context.Context, addr string, connections int, duration time.Duration, keysPath string) (summary, error) {
	cmd := exec.CommandContext(ctx, "wrk", "-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%.0fs", duration.Seconds()),
		"-s", "bench/load.lua", "http://"+addr)
	if keysPath != "" {
		cmd.Env = append(os.Environ(), "KEYS="+keysPath)
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		return summary{}, fmt.Errorf("wrk: %w\n%s", err, text)
	}
	_, line, ok := strings.Cut(string(text), "\n{")
	var s summary
	if err := json.Unmarshal([]byte("{"+line), &s); !ok || err != nil {
		return summary{}, fmt.Errorf("wrk printed no summary: %w\n%s", err, text)
	}
	if s.Requests == 0 || s.Broken > 0 {
		return summary{}, fmt.Errorf("%d requests, %d of them broken\n%s", s.Requests, s.Broken, text)
	}
	return s, nil
}
