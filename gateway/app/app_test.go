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
	"regexp"
	"slices"
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
	"petgate/shared/operate"
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
	cfg.ID = "gw-test"
	cfg.DatabaseURL = service.Secret(databaseURL)
	cfg.Upstreams = []string{upstream.URL}
	cfg.Listen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Snapshot = t.TempDir() + "/snapshot"
	cfg.DrainDelay = 0
	cfg.Docs = false // the pages take half a second of processor time under the race detector
	if change != nil {
		change(&cfg)
	}
	ports := must.Get[service.Ports](t)(service.OpenPorts(&cfg, "GATEWAY_"))
	r := &running{url: "http://" + ports.Public.Addr().String(), admin: "http://" + ports.Admin.Addr().String()}
	r.ended = make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() {
		r.ended <- app.Run(ctx, cfg, ports, service.NewLog(&r.log, false, slog.LevelInfo, "gateway"), &r.accessLog)
	}()
	t.Cleanup(cancel)
	return r
}

// ready starts a gateway and waits until it is ready.
func ready(t *testing.T, databaseURL string, change func(*app.Config)) *running {
	t.Helper()
	r := start(t, databaseURL, change)
	r.await(t, http.StatusOK)
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

func storeOf(db *database.DB) *keystore.Store { return keystore.New(db, nil, nil, "test") }

// newKey makes a tenant on plan free and a key of it.
func newKey(t *testing.T, db *database.DB) (tenant id.Tenant, token string) {
	t.Helper()
	spec := keystore.TenantSpec{Name: "acme", Plan: "free"}
	tenant = must.First[keystore.Tenant](t)(storeOf(db).CreateTenant(t.Context(), spec)).ID
	_, token, _, err := storeOf(db).CreateKey(t.Context(), keystore.KeySpec{Tenant: tenant})
	must.Do(t, err)
	return tenant, token
}

func TestAnOldSchemaIsNamedAndWaitedFor(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url)
		r := start(t, url, nil)
		r.await(t, http.StatusServiceUnavailable, "keyadmin migrate")
		expect(t, r.admin+"/healthz", "", http.StatusOK)
		must.Do(t, db.Migrate(t.Context(), schema.Migrations))
		r.await(t, http.StatusOK)
		r.end(t)
	})
}

func TestQuotasSurviveARestart(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url, schema.Migrations)
		tenant, token := newKey(t, db)
		r := ready(t, url, nil)
		for range 3 {
			expect(t, r.url+"/v1/pets", token, http.StatusOK)
		}
		r.end(t)
		must.Equal(t, strings.Count(r.accessLog.String(), `"status":200`), 3,
			"requests in the access log of a gateway that has ended")

		r = ready(t, url, nil)
		quota := r.admin + "/quota/" + tenant.String()
		body := expect(t, quota, "", http.StatusOK,
			`{"environment":"live","tenant":"`+tenant.String()+`","plan":"free","limits":{"minute":60,"day":1000`,
			`"mode":"memory","degraded":false,"refuses":false,"minute":{"limit":60,"used":3,"remaining":57,"resetAt":`,
			`"day":{"limit":1000,"used":3,"remaining":997,"resetAt":`)
		retries := regexp.MustCompile(`"retryAt":(0|\d{13})},"day":.*00000,"retryAt":0}}`)
		if found := retries.FindStringSubmatch(body); found == nil || found[1] != "0" {
			t.Errorf("after the restart: %s", body)
		}
		body = expect(t, quota+"?cost=58", "", http.StatusOK)
		if found := retries.FindStringSubmatch(body); found == nil || found[1] == "0" {
			t.Errorf("a request that costs 58 when 57 remain of the minute: %s", body)
		}
		expect(t, quota+"?cost=0", "", http.StatusBadRequest)
		expect(t, quota+"?key=nobody", "", http.StatusBadRequest)
		expect(t, r.admin+"/quota/nobody", "", http.StatusBadRequest)
		expect(t, r.admin+"/quota/"+(id.Tenant{1}).String(), "", http.StatusNotFound)

		spec := keystore.KeySpec{Tenant: tenant, Limits: plan.Limits{Minute: 1}}
		capped, token, _, err := storeOf(db).CreateKey(t.Context(), spec)
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
	for _, name := range []string{"gw-0", "gw-1"} {
		r := ready(t, databaseURL, func(cfg *app.Config) {
			cfg.ID = name
			cfg.RedisURL, cfg.RedisPrefix = service.Secret(redisURL), prefix
			cfg.Console = true
		})
		expect(t, r.url+"/v1/pets", token, http.StatusOK)
		expect(t, r.admin+operators.Root+"/tenants", "", http.StatusNotFound) // without --operators-api
		gateways = append(gateways, r)
	}
	used := func(r *running) int {
		var report struct{ Day struct{ Used int } }
		must.Do(t, json.Unmarshal([]byte(expect(t, r.admin+"/quota/"+tenant.String(), "", http.StatusOK)), &report))
		return report.Day.Used
	}
	// A gateway counts alone for a moment if this machine stops Redis for longer than the budget.
	testkit.Eventually(t, readyWithin, "a gateway counts its own request and that of the other gateway", func() bool {
		before := used(gateways[1])
		for _, r := range gateways {
			get(t, r.url+"/v1/pets", token)
		}
		return used(gateways[1]) == before+2
	})
	wants := []string{
		`"environment":"live"`, `"console":true`, `"mode":"shared"`, `"id":"createPet","scopes":["pets:write"]`,
		`"auth-failures-per-minute":"120","ban-after":"30","ban-for":"1m0s","ban-max":"1h0m0s","body-bytes-max":"`,
		`"directory-max-age":"0s"`, `"redis-prefix":"` + prefix + `"`,
		`"redis-url":"redis://` + must.Get[*url.URL](t)(url.Parse(redisURL)).Host, // without its password
		`"version":"7.`, `"maxmemoryPolicy":"noeviction","appendOnly":false,"skewMillis":0`,
	}
	var body string
	if !testkit.Await(readyWithin, func() bool {
		_, body = get(t, gateways[0].admin+"/about", "")
		return hasAll(body, wants)
	}) {
		t.Errorf("/about lacks some of %q: %s", wants, body)
	}
	must.Get[keystore.Change](t)(storeOf(db).ResetUsage(t.Context(), tenant))
	testkit.Eventually(t, readyWithin, "a reset arrives", func() bool { return used(gateways[0]) == 0 })
	for _, r := range gateways {
		r.end(t)
	}
}

// Gateways that do not know of each other's quotas say so, and go on.
func TestSeveralGatewaysWithoutRedis(t *testing.T) {
	url := testkit.SQLite(t)
	testkit.Open(t, url, schema.Migrations)
	first := ready(t, url, nil)
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

	r := ready(t, databaseURL, sameSnapshot)
	expect(t, r.url+"/v1/pets", token, http.StatusOK)
	testkit.Eventually(t, readyWithin, "the use is saved, and the snapshot is written", func() bool {
		saved, err := stored.Of(storeOf(db)).LoadQuotas(t.Context())
		_, missing := os.Stat(snapshot)
		return err == nil && len(saved) == 1 && missing == nil
	})
	proxy.Kill()
	r.stop()
	<-r.ended // with an error: it could not sign off

	r = start(t, databaseURL, sameSnapshot)
	testkit.Eventually(t, readyWithin, "it says that it cannot decide", func() bool {
		response, body := get(t, r.url+"/v1/pets", token)
		isUndecided := strings.Contains(body, `"limits_unavailable"`) && response.Header.Get("Retry-After") != ""
		return response.StatusCode == http.StatusServiceUnavailable && isUndecided
	})
	expect(t, r.admin+"/readyz", "", http.StatusServiceUnavailable, "saved quotas")
	proxy.Restore(t)
	r.await(t, http.StatusOK)
	response, body := get(t, r.url+"/v1/pets", token)
	must.Equal(t, response.StatusCode, http.StatusOK, "with the database: %s", body)
	must.Equal(t, response.Header.Get("X-RateLimit-Remaining"), "58", "with the database: remaining")
	r.end(t)
}

// The log names the places that a gateway uses, without passwords. A gateway that listens on all
// addresses registers the name of its host.
func TestServingIsLoggedWithItsPlaces(t *testing.T) {
	url := testkit.SQLite(t)
	db := testkit.Open(t, url, schema.Migrations)
	for quotas, redisURL := range map[string]string{
		`["memory"]`:                "",
		`["redis://127.0.0.1:1/3"]`: "redis://petgate:hunter2@127.0.0.1:1/3",
	} {
		r := start(t, url, func(cfg *app.Config) {
			cfg.RedisURL, cfg.Upstreams = service.Secret(redisURL), []string{"unix:/run/pets.sock"}
			cfg.AdminListen = ":0"
			cfg.Docs = true
		})
		_, port, _ := strings.Cut(r.admin, "]:")
		reachable := net.JoinHostPort(must.Get[string](t)(os.Hostname()), port)
		testkit.Eventually(t, readyWithin, "it serves and registers "+reachable, func() bool {
			gateways, err := storeOf(db).Gateways(t.Context())
			isRegistered := err == nil && len(gateways) == 1 && gateways[0].AdminAddress == reachable
			return isRegistered && strings.Contains(r.log.String(), `"msg":"serving"`)
		})
		r.end(t)
		address := `"adminAddress":"` + strings.TrimPrefix(r.admin, "http://") + `"`
		wants := []string{`"quotas":` + quotas, `"upstreams":["unix:/run/pets.sock"]`, address}
		if log := r.log.String(); strings.Contains(log, "hunter2") || !hasAll(log, wants) {
			t.Errorf("the log lacks some of %q, or has a password:\n%s", wants, log)
		}
	}
}

func TestWhatNoWaitingCures(t *testing.T) {
	err := start(t, testkit.SQLite(t), nil).awaitEnd(t)
	if err == nil || !strings.Contains(err.Error(), "keyadmin migrate") {
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
		if err == nil || !hasAll(err.Error(), append(strings.Split(settings, ","), address+" is in use")) {
			t.Errorf("a busy%s: %v", settings, err)
		}
	}
}

// A process whose gateway ID was taken ends its gateway with an error, so that its supervisor
// notices.
func TestDisplacedGatewayEnds(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		store := storeOf(testkit.Open(t, url, schema.Migrations))
		first := ready(t, url, nil)
		another := keystore.Registration{ID: "gw-test", Incarnation: "another"}
		must.Get[int64](t)(store.Register(t.Context(), another, nil))
		if err := first.awaitEnd(t); !errors.Is(err, keystore.ErrDisplaced) {
			t.Errorf("Run() = %v", err)
		}
	})
}

// A watcher sees each request at once, with the tenant's limits and what is used of them.
func TestLive(t *testing.T) {
	url := testkit.SQLite(t)
	tenant, token := newKey(t, testkit.Open(t, url, schema.Migrations))
	r := ready(t, url, nil)
	live := func(query string, texts ...string) (answer operate.Live) {
		t.Helper()
		must.Do(t, json.Unmarshal([]byte(expect(t, r.admin+"/live"+query, "", http.StatusOK, texts...)), &answer))
		return answer
	}
	expect(t, r.url+"/docs", "", http.StatusUnauthorized) // the documentation is off
	before := live("", `"requests":0,`)
	for range 61 {
		get(t, r.url+"/v1/pets", token)
	}
	get(t, r.url+"/v1/pets", "") // of no tenant
	now := live("?n=10",
		`{"gateway":"gw-test","environment":"live","mode":"memory","since":`, `,"elapsedMillis":`,
		`,"requests":61,"refused":1,"bans":0,"version":"`, `,"certificateEndsAt":0,"withinSeconds":[`, `],"took":[`,
		`],"active":1,"tenants":[{"id":"`+tenant.String()+`","plan":"free","limits":{"minute":60,`, `,"sinceMillis":`,
		`,"requests":61,"refused":1,"minuteUsed":60,"dayUsed":60,"monthUsed":60}]}`)
	if now.Since != before.Since || now.Elapsed < before.Elapsed {
		t.Errorf("the counting began at %d for %d ms, then at %d for %d ms",
			before.Since, before.Elapsed, now.Since, now.Elapsed)
	}
	last := len(now.Took) - 1
	if last < 1 || len(now.Within) != len(now.Took) || now.Took[0] > now.Took[last] {
		t.Fatalf("latencies: %v within %v", now.Took, now.Within)
	}
	must.Equal(t, now.Took[last]-before.Took[last], 62, "responses")
	live("?n=0", `,"requests":61,`, `],"active":1,"tenants":[]}`)
	for _, query := range []string{"?n=-1", "?n=x", "?n=5001"} {
		expect(t, r.admin+"/live"+query, "", http.StatusBadRequest)
	}
	r.end(t)
}

// newAccountant makes a tenant with high limits and a key that may do everything.
func newAccountant(t *testing.T, db *database.DB) (tenant id.Tenant, key keystore.Key, token string) {
	t.Helper()
	tenant, _ = newKey(t, db)
	_, _, err := storeOf(db).SetQuota(t.Context(), tenant, plan.Limits{Minute: 1_000_000, Day: 1_000_000}, 0)
	must.Do(t, err)
	spec := keystore.KeySpec{Tenant: tenant, Scopes: "pets:read pets:write usage:read"}
	key, token, _, err = storeOf(db).CreateKey(t.Context(), spec)
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

// A client reads what another gateway has stored. The response is complete through the instant that
// all gateways have stored. If the database fails, the client learns nothing about its tables.
func TestStatement(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url, schema.Migrations)
		tenant, key, token := newAccountant(t, db)
		today := instant.Of(time.Now()).Truncate(24 * time.Hour)
		other := keystore.Registration{ID: "gw-other", Incarnation: "a", UsageThrough: today}
		other.Generation = must.Get[int64](t)(storeOf(db).Register(t.Context(), other, nil))
		row := stored.Row{Tenant: tenant, Key: key.ID, Operation: "listPets", Outcome: "ok", Charged: true}
		row.Hour, row.Requests = today.Add(-48*time.Hour), 42
		must.Do(t, stored.Of(storeOf(db)).AddUsage(t.Context(), other, 1, []stored.Row{row}, nil))
		r := ready(t, url, nil)
		body := r.awaitUsage(t, "?by=hour&since=3d", token)
		want := []string{
			`{"start":"` + row.Hour.String() + `","key":"` + key.ID.String() + `","operation":"listPets",` +
				`"outcome":"ok","requests":42,"charged":42,"units":42}`,
			`"completeThrough":"` + today.String() + `"`,
		}
		if !hasAll(body, want) {
			t.Errorf("%s\nwant %q", body, want)
		}
		must.Get[sql.Result](t)(db.Exec(`ALTER TABLE usage_hours RENAME TO elsewhere`))
		body = expect(t, r.url+"/v1/usage", token, http.StatusServiceUnavailable, `"usage_unavailable"`)
		if strings.Contains(body, "usage_hours") {
			t.Errorf("the client sees the name of a table: %s", body)
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
	r := ready(t, databaseURL, nil)
	r.awaitUsage(t, "", token)
	proxy.Kill()
	expect(t, r.url+"/v1/usage", token, http.StatusServiceUnavailable)
	expect(t, r.url+"/v1/pets", token, http.StatusOK)
	proxy.Restore(t)
	r.awaitUsage(t, "", token)
	r.end(t)
}
