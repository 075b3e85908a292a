package usage

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	stored "petgate/shared/keystore/usage"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// rig is a database with one tenant that has one key.
type rig struct {
	*keystore.Store
	db     *database.DB
	tenant id.Tenant
	key    id.Key
	path   string // of the file
	now    time.Time
}

func newRig(t *testing.T, url string) *rig {
	t.Helper()
	db := testkit.Open(t, url, schema.Migrations)
	r := &rig{
		Store: keystore.New(db, nil, nil, "test"), db: db, path: filepath.Join(t.TempDir(), "usage"), now: time.Now(),
	}
	tenant := must.First[keystore.Tenant](t)(
		r.CreateTenant(t.Context(), keystore.TenantSpec{Name: "acme", Plan: "free"}))
	key, _, _, err := r.CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant.ID})
	must.Do(t, err)
	r.tenant, r.key = tenant.ID, key.ID
	return r
}

// eachRig runs f with a database of each kind.
func eachRig(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	testkit.EachDatabase(t, func(t *testing.T, url string) { f(t, newRig(t, url)) })
}

// process counts as a gateway's process does.
type process struct {
	*Counter
	rig  *rig
	self keystore.Registration
	log  testkit.Output
}

// open begins a process, which stores what is left and registers.
func (r *rig) open(t *testing.T, gateway string) *process {
	t.Helper()
	p := r.unregistered(gateway)
	earlier := p.Earlier()
	must.Do(t, p.StoreEarlier(t.Context()))
	p.register(t, earlier)
	return p
}

func (r *rig) unregistered(gateway string) *process {
	p := &process{rig: r, self: keystore.Registration{ID: gateway, Incarnation: rand.Text()}}
	p.Counter = New(Config{
		Store: r.Store, Process: func() keystore.Registration { return p.self }, File: r.path,
		LongestRequest: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&p.log, nil)),
		Clock: func() time.Time { return r.now },
	})
	return p
}

func (p *process) register(t *testing.T, ended []string) {
	t.Helper()
	p.self.UsageThrough = p.Through()
	p.self.Generation = must.Get[int64](t)(p.rig.Register(t.Context(), p.self, ended))
}

// calls counts this many charged requests of the key, and as many that are refused.
func (p *process) calls(n int) {
	r := p.rig
	call := Request{Tenant: r.tenant, Key: r.key, Metered: true, Cost: 5, IsTest: true, At: instant.Of(r.now)}
	for range n {
		call.Outcome, call.Charged = "ok", true
		p.Count(call)
		call.Outcome, call.Charged = "minute_quota_exceeded", false
		p.Count(call)
	}
}

// collected moves the counts out of the shards.
func (p *process) collected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.collect(time.Now(), instant.Of(p.rig.now))
}

// rows returns the usage that the database has, and how many requests these are.
func (r *rig) rows(t *testing.T) (rows []stored.Row, requests int64) {
	t.Helper()
	rows = must.Get[[]stored.Row](t)(stored.Of(r.Store).Usage(t.Context(), r.tenant, 0))
	for _, row := range rows {
		requests += row.Requests
	}
	return rows, requests
}

func (r *rig) requests(t *testing.T) int64 {
	t.Helper()
	_, requests := r.rows(t)
	return requests
}

func (r *rig) gateways(t *testing.T) []keystore.Gateway {
	t.Helper()
	return must.Get[[]keystore.Gateway](t)(r.Gateways(t.Context()))
}

// wantGap compares the gaps of the usage, all of which begin at an instant.
func (r *rig) wantGap(t *testing.T, when string, since instant.Millis, causes ...string) {
	t.Helper()
	found := map[string]bool{}
	for _, g := range must.Get[[]stored.Gap](t)(stored.Of(r.Store).UsageGaps(t.Context(), 0)) {
		found[g.Cause] = true
		if g.Since != since || g.NotedAt < g.SeenAt {
			t.Errorf("%s: the gap is %+v, want it from %d on", when, g, since)
		}
	}
	for _, cause := range causes {
		if !found[cause] {
			t.Errorf("%s: the gaps are %v, want %s", when, found, cause)
		}
	}
	must.Equal(t, len(found), len(causes), "%s: gaps", when)
}

func (r *rig) wantNoFile(t *testing.T, when string) {
	t.Helper()
	if _, err := os.Stat(r.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: the file is still there: %v", when, err)
	}
}
