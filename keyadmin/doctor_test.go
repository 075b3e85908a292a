package main

import (
	dbsql "database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// station stands for a gateway's admin port.
type station struct {
	about    operate.About
	problems []service.Problem
	isDown   bool // /readyz responds with 503
	url      string
}

func newStation(t *testing.T) *station {
	s := &station{about: operate.About{
		Version: "v1", Environment: "live", Mode: "shared",
		Settings: map[string]string{"redis-prefix": "petgate:", "redis-url": "", "ban-after": "30"},
		Redis: []operate.RedisServer{
			{Address: "10.0.0.9:6379", Version: "7.0.15", Policy: "noeviction", AppendOnly: true},
		},
	}}
	s.url = testkit.AdminPort(t, map[string]any{
		"/about": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			service.WriteJSON(w, http.StatusOK, s.about)
		}),
		operate.ReadyPath: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			status := http.StatusOK
			if s.isDown {
				status = http.StatusServiceUnavailable
			}
			service.WriteJSON(w, status, map[string]any{"ready": !s.isDown, "problems": s.problems})
		}),
	})
	return s
}

func (s *station) report(name, detail string) {
	s.problems = append(s.problems, service.Problem{Name: name, Detail: detail})
}

// doctor returns what doctor finds.
func (s *shell) doctor() (found []finding, code exitCode) {
	s.t.Helper()
	r := s.keyadmin("doctor", "-o", "json")
	must.Do(s.t, json.Unmarshal([]byte(r.stdout), &found))
	return found, r.code
}

// Doctor finds each planted fault, names a cure, and ends with 1. On a healthy system it finds
// nothing.
func TestDoctor(t *testing.T) {
	t.Parallel()
	type plant func(*shell, *station, *station)
	sql := func(statement string) plant {
		return func(s *shell, _, _ *station) {
			must.Get[dbsql.Result](s.t)(s.open().Exec(statement))
		}
	}
	for _, c := range []struct {
		name       string
		plant      plant
		part, want string
	}{
		{"healthy", func(*shell, *station, *station) {}, "", ""},
		{
			"no database", func(s *shell, _, _ *station) { s.env[0] = "DATABASE_URL=sqlite:none.db" }, "database",
			"create it: `keyadmin migrate`",
		},
		{
			"no database, but a file", func(s *shell, _, _ *station) { s.env[0] = "DATABASE_URL=sqlite:../README.md" },
			"database", ", or restore the file from a backup",
		},
		{"database away", func(s *shell, _, _ *station) {
			s.env[0] = "DATABASE_URL=postgres://127.0.0.1:1/petgate?sslmode=disable"
		}, "database", "connection refused: start it, or correct $DATABASE_URL"},
		{"password of the database", func(s *shell, _, _ *station) {
			u := must.Get[*url.URL](s.t)(url.Parse(testkit.Postgres(s.t)))
			u.User = url.UserPassword("nobody", "wrong")
			s.env[0] = "DATABASE_URL=" + u.String()
		}, "database", ": correct $DATABASE_URL"},
		{"earlier tables", sql(`ALTER TABLE keys_schema RENAME TO keystore_schema`), "schema", "cannot be migrated: create another database"},
		{"new schema", sql(`UPDATE keys_schema SET version_id = version_id + 1000`), "schema", "upgrade the program"},
		{
			"no key tables", sql(`DELETE FROM keys_schema`), "schema",
			"correct $DATABASE_URL if it names another database, such as that of the pets; otherwise `keyadmin migrate`",
		},
		{"no gateway", sql(`DELETE FROM gateways`), "gateways", "no gateway is registered"},
		{
			"silent", sql(`UPDATE gateways SET seen_at = seen_at - 60000 WHERE id = 'gw-2'`), "gw-2",
			"it has stopped, hangs, or cannot reach",
		},
		{
			"fenced", sql(`UPDATE gateways SET seen_at = seen_at - 60000, max_age = 5000 WHERE id = 'gw-2'`), "gw-2",
			"longer than its --directory-max-age",
		},
		{"behind", func(s *shell, _, _ *station) {
			s.keyadmin("tenant", "create", "globex", "--wait", "0")
			s.now = s.now.Add(lagMax)
		}, "gw-1", "it has yet to apply 1 change: look for errors in its log"},
		{"starting", func(s *shell, _, _ *station) {
			must.Get[dbsql.Result](s.t)(s.open().Exec(`UPDATE gateways SET applied_event = 0 WHERE id = 'gw-2'`))
			s.now = s.now.Add(lagMax)
		}, "gw-2", "it has yet to apply 1 change: look for errors in its log"},
		{"replaced", func(s *shell, _, _ *station) {
			must.Get[int64](s.t)(s.store().Register(s.t.Context(),
				keystore.Registration{ID: "gw-2", Incarnation: "other"}, nil))
		}, "gw-2", "another process has registered with its ID"},
		{"lost refusals", func(s *shell, _, _ *station) {
			_, err := s.store().ReportLost(s.t.Context(),
				[]keystore.LostRefusal{{
					Kind: keystore.LostSuspension, Tenant: tenantID(s, "acme"),
					At: instant.Of(s.now),
				}})
			must.Do(s.t, err)
		}, "database", "1 refusal that gateways keep in force: the database has lost the changes: " +
			"repeat each change, or end it: `keyadmin gateway lost` lists them"},
		{
			"admin port", sql(`UPDATE gateways SET admin_address = '127.0.0.1:1' WHERE id = 'gw-2'`), "gw-2",
			"its admin port does not answer: Get ",
		},
		{
			"clock", func(_ *shell, g, _ *station) { g.report("clock", "this host's clock is ahead of the database's") },
			"gw-1", "clock: this host's clock",
		},
		{"not ready", func(_ *shell, g, _ *station) {
			g.isDown = true
			g.report("quotas", "Redis does not answer")
		}, "gw-1", "Redis does not answer"},
		{
			"eviction",
			func(_ *shell, g, h *station) {
				g.about.Redis[0].Policy, h.about.Redis = "allkeys-lru",
					g.about.Redis
			}, "redis", "maxmemory-policy allkeys-lru",
		},
		{
			"eviction of what expires",
			func(_ *shell, g, _ *station) { g.about.Redis[0].Policy = "volatile-lru" },
			"redis", "maxmemory-policy volatile-lru",
		},
		{"durability", func(_ *shell, g, _ *station) { g.about.Redis[0].AppendOnly = false }, "redis", "forgets all quotas in a restart"},
		{
			"old Redis", func(_ *shell, g, _ *station) { g.about.Redis[0].Version = "5.0.14" }, "redis",
			"has version 5.0.14: use Redis 7 or newer: older ones are not tested",
		},
		{
			"clock of Redis", func(_ *shell, g, _ *station) { g.about.Redis[0].SkewMillis = -299_960 }, "redis",
			"the clock of 10.0.0.9:6379 differs by 5m0s from that of gateway gw-1: ",
		},
		{"password of Redis", func(_ *shell, g, _ *station) {
			g.about.Redis[0] = operate.RedisServer{Address: "10.0.0.9:6379", Error: "WRONGPASS"}
		}, "redis", "WRONGPASS"},
		{"no node of a cluster", func(_ *shell, g, _ *station) {
			g.about.Redis[0] = operate.RedisServer{Error: "connection refused"}
		}, "redis", "the cluster does not answer gateway gw-1: connection refused"},
		{
			"settings", func(_ *shell, g, _ *station) { g.about.Settings["ban-after"] = "5" }, "gateways",
			"--ban-after differs: 30 at gw-2; 5 at gw-1",
		},
		{"another Redis", func(_ *shell, g, _ *station) { g.about.Settings["redis-url"] = "redis://b" }, "gateways", "REDIS_URL differs"},
		{"versions", func(_ *shell, g, _ *station) { g.about.Version = "v2" }, "gateways", "their versions differ: v1 at gw-2; v2 at gw-1"},
		{
			"documents", sql(`UPDATE gateways SET document = '{"hash":"0123","title":"Orders","version":"7"}'
				WHERE id = 'gw-2'`), "gateways",
			"they serve different documents: none at gw-1; Orders 7 (0123) at gw-2",
		},
		{"other environment", func(_ *shell, g, _ *station) {
			g.about.Environment, g.about.Version, g.about.Settings["ban-after"] = "test", "v1", "5"
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newMigrated(t, testkit.SQLite(t))
			one, two, store := newStation(t), newStation(t), s.store()
			must.First[keystore.Tenant](t)(store.CreateTenant(t.Context(),
				keystore.TenantSpec{Name: "acme", Plan: "free"}))
			s.now = s.now.Add(time.Second)
			s.gateway(store, "gw-1", one.url).follow()
			s.gateway(store, "gw-2", two.url).follow()
			c.plant(s, one, two)
			if c.part == "" {
				s.want(exitDone, "Nothing is wrong: the database is current, and 2 gateways without a problem.",
					"doctor")
				return
			}
			found, code := s.doctor()
			isHit := func(f finding) bool {
				return f.Part == c.part && strings.Contains(f.Problem+": "+f.Cure, c.want) && f.Cure != ""
			}
			if !slices.ContainsFunc(found, isHit) || code != exitFailed || len(found) > 2 ||
				len(slices.Compact(slices.Clone(found))) < len(found) {
				t.Errorf("exit %d, want 1 and %s: %s in %+v", code, c.part, c.want, found)
			}
		})
	}
}

// A problem that carries its cause gets that cure, not the one for its name. One cause is one
// finding, with all gateways that have it.
func TestDoctorFindsTheCause(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	one, two := newStation(t), newStation(t)
	s.gateway(s.store(), "gw-1", one.url)
	s.gateway(s.store(), "gw-2", two.url)
	const full = "the disk of the database is full: make room"
	one.problems = []service.Problem{
		{Name: "quotas", Detail: "quotas cannot be saved: " + full + ": code 13", Cure: full},
		{Name: "database", Detail: "not read for 3s: " + full + ": code 13", Cure: full},
		{Name: "clock", Detail: "it is late"},
		// The cure for a name is no cause that these two share.
		{Name: "quotas", Detail: "Redis does not answer", Cure: service.CureOf("quotas")},
		{Name: "quotas", Detail: "it may evict", Cure: service.CureOf("quotas")},
	}
	two.problems = []service.Problem{
		{Name: "database", Detail: "not read for 4s: " + full + ": code 13", Cure: full},
		{Name: "clock", Detail: "it is late"},
	}
	found, _ := s.doctor()
	want := []finding{
		{"gw-1", "quotas: Redis does not answer", service.CureOf("quotas")},
		{"gw-1", "quotas: it may evict", service.CureOf("quotas")},
		{"gw-1, gw-2", "quotas: " + one.problems[0].Detail, "make room"},
		{"gw-1, gw-2", "clock: it is late", service.CureOf("clock")},
	}
	if !slices.Equal(found, want) {
		t.Errorf("%+v\nwant %+v", found, want)
	}
}

// hold takes the writers' lock in a session of its own, until the test ends.
func hold(t *testing.T, s *shell) (pid int) {
	t.Helper()
	session := must.Get[*dbsql.DB](t)(
		dbsql.Open("postgres", s.env[0][len("DATABASE_URL="):]+"&application_name=intruder"),
	)
	session.SetMaxOpenConns(1)
	t.Cleanup(func() { session.Close() })
	must.Do(t, session.QueryRow(`SELECT pg_backend_pid() FROM pg_advisory_lock(123581046915073)`).Scan(&pid))
	return pid
}

// A change that waits too long for the lock of all changes says who holds it, and so does doctor.
func TestHeldLockIsNamed(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.Postgres(t))
	s.ok("tenant", "create", "acme")
	pid := hold(t, s)
	cure := fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid)
	s.env[0] += "&statement_timeout=2000"
	for _, change := range [][]string{
		{"tenant", "suspend", "acme", "--yes"}, {"key", "create", "acme"}, {
			"tenant", "set-plan", "acme",
			"pro",
		}, {"console", "--end-sessions", "--yes"},
	} {
		if r := s.keyadmin(change...); r.code == exitDone || !strings.Contains(r.stderr, "application intruder") ||
			!strings.Contains(r.stderr, cure) {
			t.Errorf("%v: exit %d: %s", change, r.code, r.stderr)
		}
	}
	testkit.Eventually(t, 5*lagMax, "doctor names the holder", func() bool {
		out := s.keyadmin("doctor", "-o", "json").stdout
		return strings.Contains(out, "application intruder") && strings.Contains(out, cure)
	})
	must.Get[dbsql.Result](t)(s.open().Exec(`SELECT pg_terminate_backend($1)`, pid))
	testkit.Eventually(t, time.Minute, "the cure helps",
		func() bool { return s.keyadmin("tenant", "suspend", "acme", "--yes").code == exitDone })
}
