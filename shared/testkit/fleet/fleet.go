// Package fleet runs the product for tests as operators do: built binaries, real processes, real
// servers.
//
// A fleet is any number of gateways with one database, optionally one Redis, and one upstream: the
// pet service or the test's own. Everything ends with the test.
package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
)

// readyWithin limits the start of a program, also with a large document on a machine that is busy
// with other tests.
const readyWithin = 2 * time.Minute

// Spec describes a fleet. The zero value has only a migrated Postgres database.
type Spec struct {
	Database    string   // URL; empty is a fresh Postgres database
	Redis       string   // URL; empty: quotas in process, for one gateway only
	RedisPrefix string   // of all names in Redis
	Gateways    int      // how many
	Upstreams   string   // the gateways' GATEWAY_UPSTREAMS; empty starts the pet service
	GatewayEnv  []string // settings of every gateway, "NAME=value"
	PetsEnv     []string // settings of the pet service
}

// Fleet is a running fleet. Its methods end the test if they fail.
type Fleet struct {
	Database string
	Pets     *Program // nil if the test has its own upstream
	Gateways []*Program

	t        testing.TB
	settings []string // of every gateway
}

// Program is one gateway or pet service. It keeps addresses, settings and directory over a restart.
type Program struct {
	*testkit.Process // of the last start

	URL   string // where it serves
	Admin string // its admin port, as a URL
	ID    string // of a gateway; empty for the pet service

	Systemd *testkit.Systemd // starts the program, unless it is nil
	LogTo   *os.File         // gets all output of a start without Systemd, unless it is nil

	path string
	env  []string

	mu   sync.Mutex
	idle []*pooled // connections for Ask
}

// pooled is a client of one start of a program: its connection ends with the process.
type pooled struct {
	*Client
	of   *testkit.Process
	used time.Time // last
}

// Start starts the fleet and waits until all programs are ready.
func Start(t testing.TB, spec Spec) *Fleet {
	t.Helper()
	f := &Fleet{Database: spec.Database, t: t}
	if f.Database == "" {
		f.Database = testkit.Postgres(t)
	}
	if done := f.Keyadmin("migrate"); done.Code != 0 {
		t.Fatalf("keyadmin migrate: exit code %d\n%s", done.Code, done.Stderr)
	}
	if spec.Upstreams == "" && spec.Gateways > 0 {
		f.Pets = f.AddPets(spec.PetsEnv...)
		spec.Upstreams = f.Pets.URL
	}
	f.settings = []string{"DATABASE_URL=" + f.Database, "GATEWAY_UPSTREAMS=" + spec.Upstreams}
	if spec.Redis != "" {
		f.settings = append(f.settings, "REDIS_URL="+spec.Redis)
	}
	if spec.RedisPrefix != "" {
		f.settings = append(f.settings, "GATEWAY_REDIS_PREFIX="+spec.RedisPrefix)
	}
	f.settings = append(f.settings, spec.GatewayEnv...)
	for range spec.Gateways {
		f.AddGateway()
	}
	return f
}

// AddGateway starts one more gateway and waits until it is ready. settings override the settings of
// all gateways.
func (f *Fleet) AddGateway(settings ...string) *Program {
	f.t.Helper()
	id := fmt.Sprintf("gw-%d", len(f.Gateways)+1)
	own := []string{"GATEWAY_ID=" + id, "GATEWAY_SNAPSHOT=" + filepath.Join(f.t.TempDir(), id+".snapshot")}
	p := f.add("gateway", id, slices.Concat(own, f.settings, settings))
	f.Gateways = append(f.Gateways, p)
	p.Start(f.t)
	return p
}

// AddPets starts one more pet service with the given settings and waits until it is ready. Gateways
// do not use it unless their settings name it.
func (f *Fleet) AddPets(settings ...string) *Program {
	f.t.Helper()
	p := f.add("petsvc", "", append([]string{"DATABASE_URL=" + f.Database}, settings...))
	p.Start(f.t)
	return p
}

func (f *Fleet) add(name, id string, env []string) *Program {
	f.t.Helper()
	listen, admin := address(f.t), address(f.t)
	prefix := strings.ToUpper(name)
	p := &Program{
		URL: "http://" + listen, Admin: "http://" + admin, ID: id,
		path: testkit.Build(f.t, "petgate/"+name),
		// No balancer has to notice that the program ends.
		env: append(
			[]string{prefix + "_LISTEN=" + listen, prefix + "_ADMIN_LISTEN=" + admin, prefix + "_DRAIN_DELAY=0s"},
			env...),
	}
	f.t.Cleanup(p.closeIdle)
	return p
}

// closeIdle closes the idle connections of Ask.
func (p *Program) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}

func address(t testing.TB) string { return "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t)) }

// Start runs the program, or runs it again after its end, and waits until it is ready.
func (p *Program) Start(t testing.TB) {
	t.Helper()
	p.Launch(t)
	p.AwaitReady(t)
}

// Launch runs the program without waiting for it.
func (p *Program) Launch(t testing.TB) {
	t.Helper()
	start := testkit.Start
	switch {
	case p.Systemd != nil:
		start = p.Systemd.Start
	case p.LogTo != nil:
		start = func(t testing.TB, path string, env []string, args ...string) *testkit.Process {
			return testkit.StartTo(t, p.LogTo, path, env, args...)
		}
	}
	process := start(t, p.path, p.env)
	p.closeIdle() // they belong to the earlier process
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Process = process
}

// AwaitReady waits until /readyz says so.
func (p *Program) AwaitReady(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, readyWithin, p.path+" is ready", func() bool { return p.Ready() })
}

// Ready reports whether /readyz answers 200.
func (p *Program) Ready() bool {
	response, err := http.Get(p.Admin + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Result is the result of a command.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Keyadmin runs one command on the fleet's database.
func (f *Fleet) Keyadmin(args ...string) Result {
	f.t.Helper()
	return f.run(nil, testkit.Build(f.t, "petgate/keyadmin"), args...)
}

// KeyadminWith is Keyadmin with a token on standard input.
func (f *Fleet) KeyadminWith(token string, args ...string) Result {
	f.t.Helper()
	script := []string{"-c", `printf %s "$TOKEN" | "$@"`, "sh", testkit.Build(f.t, "petgate/keyadmin")}
	return f.run([]string{"TOKEN=" + token}, "/bin/sh", append(script, args...)...)
}

func (f *Fleet) run(env []string, path string, args ...string) Result {
	f.t.Helper()
	p := testkit.Start(f.t, path, append(env, "DATABASE_URL="+f.Database), args...)
	code := p.ExitCode(f.t)
	return Result{Stdout: p.Stdout.String(), Stderr: p.Stderr.String(), Code: code}
}

// MustKeyadmin is Keyadmin for a command that must exit with 0. It returns standard output.
func (f *Fleet) MustKeyadmin(args ...string) string {
	f.t.Helper()
	result := f.Keyadmin(args...)
	if result.Code != 0 {
		f.t.Fatalf("keyadmin %s: exit code %d\n%s", strings.Join(args, " "), result.Code, result.Stderr)
	}
	return result.Stdout
}

// Key is the output of `keyadmin key create`.
type Key struct {
	ID       string `json:"id"`
	Token    string `json:"token"`
	TenantID string `json:"tenantId"`
}

// NewKey creates a key of an existing tenant, with the given flags.
func (f *Fleet) NewKey(tenant string, flags ...string) Key {
	f.t.Helper()
	done := f.Keyadmin(append([]string{"key", "create", tenant, "--output", "json"}, flags...)...)
	var key Key
	_ = json.Unmarshal([]byte(done.Stdout), &key) // a command that failed prints none
	if done.Code != 0 || key.ID == "" {
		f.t.Fatalf("keyadmin key create %s: exit code %d\n%s%s", tenant, done.Code, done.Stdout, done.Stderr)
	}
	return key
}

// NewTenant creates a tenant with the given flags (such as "--plan", "pro") and a key for it.
func (f *Fleet) NewTenant(name string, flags ...string) Key {
	f.t.Helper()
	f.MustKeyadmin(append([]string{"tenant", "create", name}, flags...)...)
	return f.NewKey(name)
}
