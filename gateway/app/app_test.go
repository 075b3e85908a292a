package app_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/gateway/app"
	"petgate/gateway/operators"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/schema"
	stored "petgate/shared/keystore/usage"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

const readyWithin = time.Minute

// running is a gateway in this process.
type running struct {
	url, admin string
	log        testkit.Output
	accessLog  testkit.Output
	stop       context.CancelFunc
	ended      chan error
}

func start(t *testing.T, databaseURL string, change func(*app.Config)) *running {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[]")
	}))
	t.Cleanup(upstream.Close)
	var cfg app.Config
	if code, done := service.Load(&cfg, "gateway", "", nil, io.Discard, io.Discard); done {
		t.Fatalf("the defaults are refused: exit code %d", code)
	}
	cfg.DatabaseURL, cfg.Upstreams, cfg.ID = service.Secret(databaseURL), []string{upstream.URL}, "gw-test"
	cfg.Listen, cfg.AdminListen, cfg.Snapshot = "127.0.0.1:0", "127.0.0.1:0", t.TempDir()+"/snapshot"
	cfg.DrainDelay = 0
	cfg.Docs = false // the pages take half a second of processor time under the race detector
	if change != nil {
		change(&cfg)
	}
	ports := must.Get[service.Ports](t)(service.OpenPorts(&cfg, "GATEWAY_"))
	r := &running{
		url: "http://" + ports.Public.Addr().String(), admin: "http://" + ports.Admin.Addr().String(), ended: make(chan error, 1),
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() {
		r.ended <- app.Run(ctx, cfg, ports, service.NewLog(&r.log, false, slog.LevelInfo, "gateway"), &r.accessLog)
	}()
	t.Cleanup(cancel)
	return r
}

// end stops the gateway and waits for it.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	must.Do(t, r.awaitEnd(t))
}

// awaitEnd returns what Run has returned.
func (r *running) awaitEnd(t *testing.T) (err error) {
	t.Helper()
	select {
	case err = <-r.ended:
	case <-time.After(readyWithin):
		t.Fatal("the gateway does not end")
	}
	return err
}

func get(t *testing.T, url, token string) (*http.Response, string) {
	t.Helper()
	return testkit.Send(t, http.DefaultClient, http.MethodGet, url, token, "")
}

// expect compares a response with its status and with texts that its body has, and returns the
// body.
func expect(t *testing.T, url, token string, status int, texts ...string) (body string) {
	t.Helper()
	response, body := get(t, url, token)
	if response.StatusCode != status || !hasAll(body, texts) {
		t.Errorf("GET %s: %d %s; want %d and %q", url, response.StatusCode, body, status, texts)
	}
	return body
}

func hasAll(body string, texts []string) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(body, text) })
}

// await waits until /readyz has this status and these texts.
func (r *running) await(t *testing.T, status int, texts ...string) {
	t.Helper()
	testkit.Eventually(t, readyWithin, fmt.Sprintf("/readyz has %d and %q", status, texts), func() bool {
		response, body := get(t, r.admin+"/readyz", "")
		return response.StatusCode == status && hasAll(body, texts)
	})
}

func (r *running) awaitReady(t *testing.T) {
	t.Helper()
	r.await(t, http.StatusOK)
}

// behindProxy returns a migrated Postgres database, and its URL through a proxy.
func behindProxy(t *testing.T) (direct *database.DB, throughProxy string, proxy *testkit.Proxy) {
	t.Helper()
	at := testkit.Postgres(t)
	direct = testkit.Open(t, at, schema.Migrations)
	u := must.Get[*url.URL](t)(url.Parse(at))
	proxy = testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	return direct, u.String(), proxy
}

// newKey makes a tenant on plan free and a key of it.
func newKey(t *testing.T, db *database.DB) (tenant id.Tenant, token string) {
	t.Helper()
	store := keystore.New(db, nil, nil, "test")
	created, _, err := store.CreateTenant(t.Context(), keystore.TenantSpec{Name: "acme", Plan: "free"})
	must.Do(t, err)
	_, token, _, err = store.CreateKey(t.Context(), keystore.KeySpec{Tenant: created.ID})
	must.Do(t, err)
	return created.ID, token
}

func TestAnOldSchemaIsNamedAndWaitedFor(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url)
		r := start(t, url, nil)
		r.await(t, http.StatusServiceUnavailable, "keyadmin migrate")
		expect(t, r.admin+"/healthz", "", http.StatusOK)
		must.Do(t, db.Migrate(t.Context(), schema.Migrations))
		r.awaitReady(t)
		r.end(t)
	})
}

func TestQuotasSurviveARestart(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url, schema.Migrations)
		tenant, token := newKey(t, db)
		r := start(t, url, nil)
		r.awaitReady(t)
		for range 3 {
			expect(t, r.url+"/v1/pets", token, http.StatusOK)
		}
		r.end(t)
		must.Equal(t, strings.Count(r.accessLog.String(), `"status":200`), 3,
			"requests in the access log of a gateway that has ended")

		r = start(t, url, nil)
		r.awaitReady(t)
		quota := r.admin + "/quota/" + tenant.String()
		type usage struct{ Limit, Used, Remaining, ResetAt, RetryAt int64 }
		var report struct {
			Environment string
			Tenant      id.Tenant
			Plan, Mode  string
			Degraded    bool
			Refuses     bool
			Limits      struct{ Minute, Day int64 }
			Minute, Day usage
		}
		body := expect(t, quota, "", http.StatusOK)
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.DisallowUnknownFields()
		must.Do(t, decoder.Decode(&report))
		if report.Environment != "live" || report.Tenant != tenant || report.Plan != "free" || report.Mode != "memory" || report.Degraded || report.Refuses || report.Limits.Minute != 60 ||
			report.Minute.Used != 3 || report.Minute.Remaining != 57 || report.Day.Used != 3 ||
			report.Day.Limit != 1000 ||
			report.Day.ResetAt%1000 != 0 ||
			report.Minute.RetryAt != 0 {
			t.Errorf("after the restart: %s", body)
		}
		body = expect(t, quota+"?cost=58", "", http.StatusOK)
		must.Do(t, json.Unmarshal([]byte(body), &report))
		if report.Minute.RetryAt == 0 || report.Day.RetryAt != 0 {
			t.Errorf("a request that costs 58 when 57 remain of the minute: %s", body)
		}
		for url, want := range map[string]int{
			quota + "?cost=0": http.StatusBadRequest, r.admin + "/quota/nobody": http.StatusBadRequest, quota + "?key=nobody": http.StatusBadRequest,
			r.admin + "/quota/" + (id.Tenant{1}).String(): http.StatusNotFound,
		} {
			expect(t, url, "", want)
		}
		capped, token, _, err := keystore.New(db, nil, nil, "test").CreateKey(t.Context(),
			keystore.KeySpec{Tenant: tenant, Limits: plan.Limits{Minute: 1}})
		must.Do(t, err)
		testkit.Eventually(t, readyWithin, "the key's own limit refuses, and the report says so", func() bool {
			response, _ := get(t, r.url+"/v1/pets", token)
			_, body := get(t, quota+"?key="+capped.ID.String(), "")
			return response.StatusCode == http.StatusTooManyRequests &&
				strings.Contains(body, `"keyMinute":{"limit":1,"used":1,"remaining":0,`)
		})
		r.end(t)
	})
}

func TestWithRedis(t *testing.T) {
	databaseURL := testkit.Postgres(t)
	db := testkit.Open(t, databaseURL, schema.Migrations)
	tenant, token := newKey(t, db)
	redisURL, prefix := testkit.Redis(t)
	var gateways []*running
	for n := range 2 {
		r := start(t, databaseURL, func(cfg *app.Config) {
			cfg.RedisURL, cfg.RedisPrefix, cfg.ID, cfg.Console = service.Secret(redisURL), prefix, "gw-"+strconv.Itoa(
				n,
			), true
		})
		r.awaitReady(t)
		expect(t, r.url+"/v1/pets", token, http.StatusOK)
		expect(t, r.admin+operators.Root+"/tenants", "", http.StatusNotFound) // without --operators-api
		gateways = append(gateways, r)
	}
	used := func() int {
		var report struct{ Day struct{ Used int } }
		must.Do(t,
			json.Unmarshal([]byte(expect(t, gateways[1].admin+"/quota/"+tenant.String(), "", http.StatusOK)), &report))
		return report.Day.Used
	}
	// A gateway counts alone for a moment if this machine stops Redis for longer than the budget.
	testkit.Eventually(t, readyWithin, "a gateway counts its own request and that of the other gateway", func() bool {
		before := used()
		for _, r := range gateways {
			get(t, r.url+"/v1/pets", token)
		}
		return used() == before+2
	})
	wants := []string{
		`"environment":"live"`, `"console":true`, `"redis-prefix":"` + prefix + `"`, `"id":"createPet","scopes":["pets:write"]`, `"version":"7.`,
		`"auth-failures-per-minute":"120","ban-after":"30","ban-for":"1m0s","ban-max":"1h0m0s","body-bytes-max":"`, `"directory-max-age":"0s"`,
		`"maxmemoryPolicy":"noeviction","appendOnly":false,"skewMillis":0`, `"mode":"shared"`,
	}
	var body string
	if !testkit.Await(readyWithin, func() bool {
		_, body = get(t, gateways[0].admin+"/about", "")
		return hasAll(body, wants)
	}) {
		t.Errorf("/about lacks some of %q: %s", wants, body)
	}
	if u, err := url.Parse(redisURL); err != nil || !strings.Contains(body, `"redis-url":"redis://`+u.Host) {
		t.Errorf("/about names Redis with its password, or not at all: %v, %s", err, body)
	}
	must.Get[keystore.Change](t)(keystore.New(db, nil, nil, "test").ResetUsage(t.Context(), tenant))
	testkit.Eventually(t, readyWithin, "a reset arrives", func() bool {
		_, body := get(t, gateways[0].admin+"/quota/"+tenant.String(), "")
		return strings.Contains(body, `"used":0`)
	})
	for _, r := range gateways {
		r.end(t)
	}
}

// Gateways that do not know of each other's quotas say so, and go on.
func TestSeveralGatewaysWithoutRedis(t *testing.T) {
	url := testkit.SQLite(t)
	testkit.Open(t, url, schema.Migrations)
	first := start(t, url, nil)
	first.awaitReady(t)
	if strings.Contains(first.log.String(), "REDIS_URL") {
		t.Errorf("a lone gateway complains:\n%s", &first.log)
	}
	second := start(t, url, func(cfg *app.Config) { cfg.ID = "gw-2" })
	for _, r := range []*running{first, second} {
		r.named(t, http.StatusOK, "quotas", "set REDIS_URL")
	}
	second.end(t)
	testkit.Eventually(t, readyWithin, "the first is alone again", func() bool {
		_, body := get(t, first.admin+"/readyz", "")
		return !strings.Contains(body, "REDIS_URL")
	})
	first.end(t)
	must.Equal(t, strings.Count(first.log.String(), "set REDIS_URL"), 1, "warnings in\n%s", &first.log)
}

// A gateway that restarts while its database is unavailable knows its keys from the snapshot, but
// not the saved quotas. It answers 503 at once, so that no tenant gets a second limit in the same
// minute.
func TestRestartWithoutTheSavedQuotas(t *testing.T) {
	db, databaseURL, proxy := behindProxy(t)
	_, token := newKey(t, db)
	snapshot := t.TempDir() + "/snapshot"
	sameSnapshot := func(cfg *app.Config) { cfg.Snapshot = snapshot }

	r := start(t, databaseURL, sameSnapshot)
	r.awaitReady(t)
	expect(t, r.url+"/v1/pets", token, http.StatusOK)
	testkit.Eventually(t, readyWithin, "the use is saved", func() bool {
		saved, err := stored.Of(keystore.New(db, nil, nil, "test")).LoadQuotas(t.Context())
		return err == nil && len(saved) == 1
	})
	testkit.Eventually(t, readyWithin, "the snapshot is written", func() bool {
		_, err := os.Stat(snapshot)
		return err == nil
	})
	proxy.Kill()
	r.stop()
	<-r.ended // with an error: it could not sign off

	r = start(t, databaseURL, sameSnapshot)
	testkit.Eventually(t, readyWithin, "it says that it cannot decide", func() bool {
		response, body := get(t, r.url+"/v1/pets", token)
		return response.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, `"limits_unavailable"`) &&
			response.Header.Get("Retry-After") != ""
	})
	expect(t, r.admin+"/readyz", "", http.StatusServiceUnavailable, "saved quotas")
	proxy.Restore(t)
	r.awaitReady(t)
	if response, body := get(t, r.url+"/v1/pets", token); response.StatusCode != http.StatusOK ||
		response.Header.Get("X-RateLimit-Remaining") != "58" {
		t.Errorf("with the database: %d %v %s", response.StatusCode, response.Header, body)
	}
	r.end(t)
}

func TestServingIsLoggedWithItsPlaces(t *testing.T) {
	url := testkit.SQLite(t)
	testkit.Open(t, url, schema.Migrations)
	for quotas, redisURL := range map[string]string{
		`["memory"]`:                "",
		`["redis://127.0.0.1:1/3"]`: "redis://petgate:hunter2@127.0.0.1:1/3",
	} {
		r := start(t, url, func(cfg *app.Config) {
			cfg.RedisURL, cfg.Upstreams = service.Secret(redisURL), []string{"unix:/run/pets.sock"}
			cfg.Docs = true
		})
		testkit.Eventually(t, readyWithin, "it serves",
			func() bool { return strings.Contains(r.log.String(), `"msg":"serving"`) })
		r.end(t)
		if log := r.log.String(); strings.Contains(log, "hunter2") || !hasAll(log, []string{
			`"quotas":` + quotas, `"upstreams":["unix:/run/pets.sock"]`, `"adminAddress":"` + strings.TrimPrefix(r.admin, "http://") + `"`,
		}) {
			t.Errorf("the log lacks a place, or has a password:\n%s", log)
		}
	}
}

func TestAdminAddressIsReachableFromElsewhere(t *testing.T) {
	url := testkit.SQLite(t)
	db := testkit.Open(t, url, schema.Migrations)
	r := start(t, url, func(cfg *app.Config) { cfg.AdminListen = ":0" })
	host, err := os.Hostname()
	must.Do(t, err)
	var gateways []keystore.Gateway
	testkit.Eventually(t, readyWithin, "the gateway registers", func() bool {
		gateways, err = keystore.New(db, nil, nil, "test").Gateways(t.Context())
		return err == nil && len(gateways) == 1
	})
	_, port, _ := strings.Cut(r.admin, "]:")
	if got, want := gateways[0].AdminAddress, net.JoinHostPort(host, port); got != want {
		t.Errorf("a gateway that listens everywhere registers %s, want %s", got, want)
	}
	r.end(t)
}

func TestWhatNoWaitingCures(t *testing.T) {
	if err := start(t, testkit.SQLite(t), nil).awaitEnd(t); err == nil ||
		!strings.Contains(err.Error(), "keyadmin migrate") {
		t.Errorf("without a database file: %v", err)
	}
	busy := httptest.NewServer(http.NotFoundHandler())
	defer busy.Close()
	address := strings.TrimPrefix(busy.URL, "http://")
	for settings, cfg := range map[string]app.Config{
		" --listen":                 {Listen: address, AdminListen: "127.0.0.1:0"},
		" --admin-listen":           {Listen: "127.0.0.1:0", AdminListen: address},
		" --listen, --admin-listen": {Listen: address, AdminListen: address},
	} {
		_, err := service.OpenPorts(&cfg, "GATEWAY_")
		if err == nil || !strings.Contains(err.Error(), address+" is in use") ||
			!hasAll(err.Error(), strings.Split(settings, ",")) {
			t.Errorf("a busy%s: %v", settings, err)
		}
	}
}

// A process whose gateway ID was taken ends its gateway with an error, so that its supervisor
// notices.
func TestDisplacedGatewayEnds(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		store := keystore.New(testkit.Open(t, url, schema.Migrations), nil, nil, "test")
		first := start(t, url, nil)
		first.awaitReady(t)
		must.Get[int64](t)(
			store.Register(t.Context(), keystore.Registration{ID: "gw-test", Incarnation: "another"}, nil),
		)
		if err := first.awaitEnd(t); !errors.Is(err, keystore.ErrDisplaced) {
			t.Errorf("Run() = %v", err)
		}
	})
}

// A watcher sees each request at once, with the tenant's limits and what is used of them.
func TestLive(t *testing.T) {
	url := testkit.SQLite(t)
	tenant, token := newKey(t, testkit.Open(t, url, schema.Migrations))
	r := start(t, url, nil)
	r.awaitReady(t)
	type answer struct {
		Gateway, Environment, Mode string
		Since, ElapsedMillis       int64
		Requests, Refused, Bans    int64
		Version                    string
		CertificateEndsAt          int64
		Active                     int
		WithinSeconds              []float64
		Took                       []uint64
		Tenants                    []struct {
			ID, Plan                                          string
			SinceMillis                                       int64
			Limits                                            struct{ Minute, Day int64 }
			Requests, Refused, MinuteUsed, DayUsed, MonthUsed int64
		}
	}
	live := func(query string) (a answer) {
		t.Helper()
		_, body := get(t, r.admin+"/live"+query, "")
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.DisallowUnknownFields()
		must.Do(t, decoder.Decode(&a))
		return a
	}
	expect(t, r.url+"/docs", "", http.StatusUnauthorized) // the documentation is off
	before := live("")
	for range 61 {
		get(t, r.url+"/v1/pets", token)
	}
	get(t, r.url+"/v1/pets", "") // of no tenant
	now := live("?n=10")
	if now.Gateway != "gw-test" || now.Environment != "live" || now.Mode != "memory" || now.Since != before.Since ||
		now.ElapsedMillis < before.ElapsedMillis || now.Requests-before.Requests != 61 || now.Refused != 1 || now.Bans != 0 || now.Active != 1 {
		t.Errorf("GET /live before: %+v, now: %+v", before, now)
	}
	if last := len(now.Took) - 1; last < 1 || len(now.WithinSeconds) != len(now.Took) ||
		now.Took[last]-before.Took[last] != 62 ||
		now.Took[0] > now.Took[last] {
		t.Errorf("latencies before: %v, now: %v within %v", before.Took, now.Took, now.WithinSeconds)
	}
	if len(now.Tenants) != 1 || now.Tenants[0].ID != tenant.String() || now.Tenants[0].Plan != "free" || now.Tenants[0].Limits.Minute != 60 ||
		now.Tenants[0].Requests != 61 || now.Tenants[0].Refused != 1 || now.Tenants[0].MinuteUsed != 60 ||
		now.Tenants[0].DayUsed != 60 ||
		now.Tenants[0].MonthUsed != 60 {
		t.Errorf("GET /live: %+v", now.Tenants)
	}
	if none := live("?n=0"); none.Requests != 61 || none.Active != 1 || none.Tenants == nil || len(none.Tenants) != 0 {
		t.Errorf("GET /live?n=0: %+v", none)
	}
	for _, query := range []string{"?n=-1", "?n=x", "?n=5001"} {
		expect(t, r.admin+"/live"+query, "", http.StatusBadRequest)
	}
	r.end(t)
}

// newAccountant makes a tenant with high limits and a key that may do everything.
func newAccountant(t *testing.T, db *database.DB) (tenant id.Tenant, key keystore.Key, token string) {
	t.Helper()
	tenant, _ = newKey(t, db)
	store := keystore.New(db, nil, nil, "test")
	_, _, err := store.SetQuota(t.Context(), tenant, plan.Limits{Minute: 1_000_000, Day: 1_000_000}, 0)
	must.Do(t, err)
	key, token, _, err = store.CreateKey(t.Context(),
		keystore.KeySpec{Tenant: tenant, Scopes: "pets:read pets:write usage:read"})
	must.Do(t, err)
	return tenant, key, token
}

// awaitUsage reads the usage. On a busy machine, the database may take longer than the gateway
// waits for it.
func (r *running) awaitUsage(t *testing.T, query, token string) (body string) {
	t.Helper()
	testkit.Eventually(t, readyWithin, "usage can be read", func() bool {
		var response *http.Response
		response, body = get(t, r.url+"/v1/usage"+query, token)
		return response.StatusCode == http.StatusOK
	})
	return body
}

// A customer reads what another gateway has stored. The response is complete through the instant
// that all gateways have stored. A database that fails is no business of the tenant's.
func TestStatement(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url, schema.Migrations)
		tenant, key, token := newAccountant(t, db)
		today := instant.Of(time.Now()).Truncate(24 * time.Hour)
		store, other := keystore.New(db, nil, nil, "gw-other"), keystore.Registration{
			ID:           "gw-other",
			Incarnation:  "a",
			UsageThrough: today,
		}
		other.Generation = must.Get[int64](t)(store.Register(t.Context(), other, nil))
		row := stored.Row{
			Tenant:    tenant,
			Key:       key.ID,
			Operation: "listPets",
			Outcome:   "ok",
			Charged:   true,
			Hour:      today.Add(-48 * time.Hour),
			Requests:  42,
		}
		must.Do(t, stored.Of(store).AddUsage(t.Context(), other, 1, []stored.Row{row}, nil))
		r := start(t, url, nil)
		r.awaitReady(t)
		body := r.awaitUsage(t, "?by=hour&since=3d", token)
		if want := []string{
			`{"start":"` + row.Hour.String() + `","key":"` + key.ID.String() + `","operation":"listPets","outcome":"ok","requests":42,"charged":42,"units":42}`,
			`"completeThrough":"` + today.String() + `"`,
		}; !hasAll(body, want) {
			t.Errorf("%s\nwant %q", body, want)
		}
		must.Get[sql.Result](t)(db.Exec(`ALTER TABLE usage_hours RENAME TO elsewhere`))
		if body := expect(t, r.url+"/v1/usage", token, http.StatusServiceUnavailable, `"usage_unavailable"`); strings.Contains(
			body, "usage_hours",
		) {
			t.Errorf("the client is told of a table: %s", body)
		}
		expect(t, r.url+"/v1/pets", token, http.StatusOK)
		must.Get[sql.Result](t)(db.Exec(`ALTER TABLE elsewhere RENAME TO usage_hours`))
		r.end(t)
	})
}

// While the database is away, usage cannot be read. Other requests are served.
func TestStatementWithoutDatabase(t *testing.T) {
	db, databaseURL, proxy := behindProxy(t)
	_, _, token := newAccountant(t, db)
	r := start(t, databaseURL, nil)
	r.awaitReady(t)
	r.awaitUsage(t, "", token)
	proxy.Kill()
	expect(t, r.url+"/v1/usage", token, http.StatusServiceUnavailable)
	expect(t, r.url+"/v1/pets", token, http.StatusOK)
	proxy.Restore(t)
	r.awaitUsage(t, "", token)
	r.end(t)
}
