package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// fragmentLen is how much of a secret counts as a leak: more than a token's hint, and too much to
// be chance.
const fragmentLen = 8

// secretOf is a token's random part, with its checksum.
func secretOf(token string) string { return token[len("ptg_live_"):] }

// leak returns where text holds a piece of a secret, or nothing.
func leak(text, secret string) string {
	for i := range len(secret) - fragmentLen + 1 {
		if at := strings.Index(text, secret[i:i+fragmentLen]); at >= 0 {
			return text[max(0, at-80):min(len(text), at+80)]
		}
	}
	return ""
}

// media collects everything that the product has written and stored, by place.
type media struct {
	t *testing.T

	mu    sync.Mutex
	texts map[string]string
}

func (m *media) add(where, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts[where] += text + "\n"
}

// recordingProxy passes everything on to target. It keeps what it receives, except the request
// line, which is the client's.
func (m *media) recordingProxy(target string) string {
	m.t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(must.Get[*url.URL](m.t)(url.Parse(target)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, _ := httputil.DumpRequest(r, true) // a request that cannot be read is not passed on either
		_, fields, _ := strings.Cut(string(dump), "\n")
		m.add("upstream requests", fields)
		proxy.ServeHTTP(w, r)
	}))
	m.t.Cleanup(server.Close)
	return server.URL
}

// keyadmin runs a command and keeps its output; input is standard input.
func (m *media) keyadmin(f *fleet.Fleet, input string, args ...string) string {
	m.t.Helper()
	done := f.KeyadminWith(input, args...)
	m.add("keyadmin", done.Stdout+done.Stderr)
	return done.Stdout
}

// mint is keyadmin for a command that shows a token, once, on standard output.
func (m *media) mint(f *fleet.Fleet, args ...string) string {
	m.t.Helper()
	done := f.Keyadmin(args...)
	if done.Code != 0 || !strings.HasPrefix(done.Stdout, "ptg_") {
		m.t.Fatalf("keyadmin %s: exit code %d, %q\n%s", strings.Join(args, " "), done.Code, done.Stdout, done.Stderr)
	}
	m.add("keyadmin", done.Stderr)
	return strings.TrimSpace(done.Stdout)
}

// The trace of a trusted proxy, which samples every call.
const (
	proxysTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	proxysSpan  = "00f067aa0ba902b7"
	sampled     = "traceparent: 00-" + proxysTrace + "-" + proxysSpan + "-01"
)

// call sends a request and keeps the answer.
func (m *media) call(g *fleet.Program, methodAndTarget, token string, lines ...string) fleet.Reply {
	m.t.Helper()
	c := g.Client()
	defer c.Close()
	a := must.Get[fleet.Reply](m.t)(c.Do(fleet.Request(methodAndTarget, token, "", append(lines, sampled)...)))
	m.add("answers", fmt.Sprint(a.Header)+a.Body)
	return a
}

// visitConsole opens a session of a gateway's console, looks at pages and ends it. It keeps the
// pages, and returns the code of the link and the session's token.
func (m *media) visitConsole(f *fleet.Fleet, g *fleet.Program) (secrets []string) {
	m.t.Helper()
	done := f.Keyadmin("console")
	m.add("keyadmin", done.Stderr)
	_, code, isLink := strings.Cut(strings.TrimSpace(done.Stdout), "#")
	at, err := url.Parse(g.Admin + "/console/")
	if !isLink || err != nil {
		m.t.Fatalf("keyadmin console: exit code %d, %q, %v\n%s", done.Code, done.Stdout, err, done.Stderr)
	}
	jar, _ := cookiejar.New(nil) // it never fails without options
	browser := http.Client{Jar: jar}
	keep := func(response *http.Response, err error) {
		m.t.Helper()
		must.Do(m.t, err)
		defer response.Body.Close()
		page := must.Get[[]byte](m.t)(io.ReadAll(response.Body))
		m.add("console", fmt.Sprint(response.Request.URL, response.Header)+string(page))
	}
	login, form := at.JoinPath("login").String(), url.Values{"code": {code}}
	keep(browser.PostForm(login, form)) // leads to the overview
	cookies := jar.Cookies(at)
	if len(cookies) != 1 {
		m.t.Fatalf("the browser has the cookies %v", cookies)
	}
	keep(browser.PostForm(login, form)) // the code is used up
	keep(browser.Get(at.JoinPath("nothing").String()))
	keep(browser.PostForm(at.JoinPath("logout").String(), nil))
	return []string{code, cookies[0].Value}
}

// addTables adds every row of every table.
func (m *media) addTables(db *database.DB) {
	m.t.Helper()
	var tables []string
	must.Do(m.t, db.Select(&tables, `SELECT tablename FROM pg_tables WHERE schemaname = 'public'`))
	for _, table := range tables {
		var rows []string
		must.Do(m.t, db.Select(&rows, `SELECT CAST(r AS text) FROM `+table+` AS r`))
		where := "database"
		if table == "events" {
			where = "events"
		}
		m.add(where, strings.Join(rows, "\n"))
	}
}

// addRedis adds every name and value of a server.
func (m *media) addRedis(server string) {
	m.t.Helper()
	c := redis.NewClient(must.Get[*redis.Options](m.t)(redis.ParseURL(server)))
	defer c.Close()
	names := c.Scan(m.t.Context(), 0, "*", 1000).Iterator()
	found := 0
	for names.Next(m.t.Context()) {
		m.add("Redis", names.Val()+" "+must.Get[string](m.t)(c.Dump(m.t.Context(), names.Val()).Result()))
		found++
	}
	if err := names.Err(); err != nil || found == 0 {
		m.t.Fatalf("%d names in Redis: %v", found, err)
	}
}

// wantTree checks that a collector gets the whole tree of a request that the proxy samples: proxy,
// gateway, pet service. The metrics name its trace. A request that nobody samples has none.
func wantTree(t *testing.T, collector *testkit.Collector, gateway, pets *fleet.Program, token string) {
	t.Helper()
	gateway.MustAsk(t, token)
	gateway.MustAsk(t, token, sampled)
	said := map[string]testkit.ExportedSpan{}
	for _, one := range collector.Await(t, 2) {
		said[one.Service+": "+one.Name] = one
	}
	ofGateway, ofPets := said["gateway: GET /v1/pets"], said["petsvc: GET /v1/pets"]
	if len(said) != 2 || fmt.Sprintf("%x", ofGateway.ParentSpanId) != proxysSpan ||
		!bytes.Equal(ofPets.ParentSpanId, ofGateway.SpanId) {
		t.Errorf("the spans are no tree: %+v", said)
	}
	for _, p := range []*fleet.Program{gateway, pets} {
		const exemplar = `# {trace_id="` + proxysTrace + `"}`
		const openMetrics = "application/openmetrics-text; version=1.0.0"
		_, open := testkit.Send(t, http.DefaultClient, http.MethodGet, p.Admin+"/metrics", "", "", "Accept",
			openMetrics)
		if plain := p.AdminPage(t, "/metrics"); !strings.Contains(open, exemplar) || strings.Contains(plain, exemplar) {
			t.Errorf("%s: an exemplar in OpenMetrics: %t, in text: %t", p.URL, strings.Contains(open, exemplar),
				strings.Contains(plain, exemplar))
		}
	}
}

// A token is printed once, on standard output, by the command that creates it. Its client sends it.
// Nothing else that the product prints, stores or passes on contains the token or a part of it. The
// same holds for the console's codes and tokens. To test the search, a planted token enters every
// medium in names and IDs that operators and clients choose. The search must find it in all of
// them.
func TestTokensDoNotLeak(t *testing.T) {
	t.Parallel()
	m := &media{t: t, texts: map[string]string{}}
	planted := bogusToken(t)
	secret := secretOf(planted)
	plantedID := "X-Request-Id: " + secret
	server := testkit.StartRedis(t)
	snapshots, collector := t.TempDir(), testkit.StartCollector(t)
	traced := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_TRACES_SAMPLER_ARG=0"}

	f := fleet.Start(t, fleet.Spec{
		Redis: server.URL, RedisPrefix: secret + ":",
		GatewayEnv: []string{
			"GATEWAY_BAN_AFTER=1", "GATEWAY_AUTH_FAILURES_PER_MINUTE=5", "GATEWAY_LOG_LEVEL=debug",
			"GATEWAY_SNAPSHOT=" + filepath.Join(snapshots, "gateway"), "GATEWAY_CONSOLE=true",
		},
	})
	f.Pets = f.AddPets(traced...)
	g := f.AddGateway(
		append(traced, "GATEWAY_UPSTREAMS="+m.recordingProxy(f.Pets.URL), "GATEWAY_TRUSTED_PROXIES=127.0.0.1/32")...)
	// Another gateway, whose ID is the planted token: for its command line and its snapshot.
	admin := "127.0.0.1:" + strconv.Itoa(testkit.FreePort(t))
	other := &fleet.Program{
		Admin: "http://" + admin,
		Process: testkit.Start(t, testkit.Build(t, "petgate/gateway"), []string{
			"DATABASE_URL=" + f.Database, "REDIS_URL=" + server.URL, "GATEWAY_DRAIN_DELAY=0s",
			"GATEWAY_SNAPSHOT=" + filepath.Join(snapshots, "other"),
		}, "--id", secret, "--listen", "127.0.0.1:0", "--admin-listen", admin),
	}
	other.AwaitReady(t)

	// The life of some keys.
	tenant := strings.Fields(
		m.keyadmin(f, "", "tenant", "create", secret, "--minute", "20", "--day", "100", "-o", "json"),
	)
	m.keyadmin(f, "", "tenant", "create", "spent", "--minute", "1")
	live := m.mint(f, "key", "create", secret)
	reader := m.mint(f, "key", "create", secret, "--scope", "pets:read", "--name", "reader", "--expires", "1h")
	test := m.mint(f, "key", "create", secret, "--test")
	far := m.mint(f, "key", "create", secret, "--allow", "192.0.2.0/24")
	spent := m.mint(f, "key", "create", "spent")
	unknown := bogusToken(t)
	tokens := []string{live, reader, test, far, spent, unknown}

	expect := func(what, code string, a fleet.Reply) {
		t.Helper()
		must.Equal(t, a.Code(), code, "%s: %d", what, a.Status)
	}
	wantTree(t, collector, g, f.Pets, live)
	expect("a good key", "", m.call(g, "GET /v1/pets", live, plantedID))
	expect("a pet that is not there", "pet_not_found", m.call(g, "GET /v1/pets/9999999", live))
	expect("a token as a path", "no_such_route", m.call(g, "GET /v1/"+live, live))
	expect("a token as a petId", "invalid_parameter", m.call(g, "GET /v1/pets/"+live, live))
	expect("a token as a query", "invalid_parameter", m.call(g, "GET /v1/pets?status="+live, live))
	expect("a token as a request ID", "", m.call(g, "GET /v1/pets", live, "X-Request-Id: "+live))
	expect("a token as a method", "method_not_allowed", m.call(g, "DELETE /v1/pets", live))
	expect("two tokens", "bad_request", m.call(g, "GET /v1/pets", live, "Authorization: Bearer "+reader))
	expect("a missing scope", "insufficient_scope",
		m.call(g, "POST /v1/pets", reader, "Content-Type: application/json", "Content-Length: 0"))
	expect("a test key", "invalid_api_key", m.call(g, "GET /v1/pets", test))
	expect("another address", "address_not_allowed", m.call(g, "GET /v1/pets", far))
	expect("a misspelt token", "malformed_api_key", m.call(g, "GET /v1/pets", misspell(live)))
	expect("half a token", "malformed_api_key", m.call(g, "GET /v1/pets", live[:30]))
	expect("a token in capitals", "malformed_api_key", m.call(g, "GET /v1/pets", strings.ToUpper(live)))
	for range 5 {
		expect("an unknown token", "invalid_api_key", m.call(g, "GET /v1/pets", unknown))
	}
	expect("too many unknown tokens", "too_many_failed_attempts", m.call(g, "GET /v1/pets", unknown))
	expect("one within the limit", "", m.call(g, "GET /v1/pets", spent))
	expect("one too many", "minute_quota_exceeded", m.call(g, "GET /v1/pets", spent))
	testkit.Eventually(t, fleet.ReplyWithin, "whoever does not wait is banned", func() bool {
		return m.call(g, "GET /v1/pets", spent).Code() == "key_banned"
	})

	id := func(token string) string {
		t.Helper()
		return between(m.keyadmin(f, token, "key", "whoami", "-o", "json"), `"id": "`, `"`)
	}
	rotated := m.mint(f, "key", "rotate", id(reader), "--grace", "1h", "--yes")
	tokens = append(tokens, rotated)
	m.keyadmin(f, "", "key", "rotate", id(reader), "--grace", "1h", "--yes") // says so, and creates no token
	expect("a rotated key", "", m.call(g, "GET /v1/pets", reader))
	expect("its successor", "", m.call(g, "GET /v1/pets", rotated))
	m.keyadmin(f, "", "key", "revoke", id(live), "--yes")
	expect("a revoked key", "invalid_api_key", m.call(g, "GET /v1/pets", live))
	m.keyadmin(f, "", "ban", "add", id(rotated), "--for", "1h", "--reason", "a test", "--yes")
	expect("a banned key", "key_banned", m.call(g, "GET /v1/pets", rotated))
	for _, token := range append(slices.Clone(tokens), misspell(live), live[:30], live+live, strings.ToUpper(live)) {
		m.keyadmin(f, token, "usage", "explain")
		m.keyadmin(f, token, "usage", "explain", "-o", "json")
		m.keyadmin(f, token, "key", "whoami")
	}
	secrets := m.visitConsole(f, g)
	for _, command := range []string{
		"tenant list", "plan list", "key list", "key list -o json", "ban list", "audit", "audit -o json",
		"gateway list", "export", "doctor -o json",
		"usage show spent", "tenant show spent", "ban lift " + id(rotated),
	} {
		m.keyadmin(f, "", strings.Fields(command)...)
	}
	testkit.Eventually(t, fleet.ReplyWithin, "usage is written", func() bool {
		return strings.Contains(f.MustKeyadmin("usage", "show", "spent"), "key_banned")
	})

	// Files and records that remain.
	for _, path := range []string{"gateway", "petsvc", "keyadmin"} {
		help := testkit.Start(t, testkit.Build(t, "petgate/"+path), []string{"GATEWAY_ID=" + secret}, "--help")
		help.ExitCode(t)
		m.add("help", help.Stdout.String()+help.Stderr.String())
	}
	m.add("help", secret) // no name that users choose gets there
	for _, program := range []string{"gateway", "petsvc"} {
		wrong := testkit.Start(t, testkit.Build(t, "petgate/"+program), nil, "--listen", secret)
		must.Equal(t, wrong.ExitCode(t), 2, "%s with a bad setting: exit code", program)
		m.add("error texts", wrong.Stderr.String())
	}
	m.add("error texts", f.Keyadmin("tenant", "show", secret+"x").Stderr)
	m.add("metrics", g.AdminPage(t, "/metrics")+g.AdminPage(t, "/about")+f.Pets.AdminPage(t, "/metrics"))
	m.add("metrics", secret) // likewise
	m.add("/quota",
		g.AdminPage(t, "/quota/"+between(strings.Join(tenant, " "), `"id": "`, `"`))+g.AdminPage(t, "/quota/"+secret))
	for _, profile := range []string{"cmdline", "goroutine?debug=2", "heap?debug=1", "allocs?debug=1"} {
		m.add("/debug/pprof", g.AdminPage(t, "/debug/pprof/"+profile)+other.AdminPage(t, "/debug/pprof/"+profile))
	}
	m.addRedis(server.URL)
	for _, name := range []string{"gateway", "other"} {
		m.add("snapshot", string(must.Get[[]byte](t)(os.ReadFile(filepath.Join(snapshots, name)))))
	}
	m.addTables(openDatabase(t, f))
	for _, p := range []*fleet.Program{g, f.Pets, other} {
		must.Equal(t, p.Stop(), 0, "exit code after SIGTERM")
	}
	m.add("logs", g.Stdout.String()+g.Stderr.String()+other.Stdout.String()+other.Stderr.String())
	m.add("logs", f.Pets.Stdout.String()+f.Pets.Stderr.String())
	m.add("traces", fmt.Sprint(collector.Spans()))

	for _, token := range tokens {
		secrets = append(secrets, secretOf(token))
	}
	size := 0
	for _, where := range slices.Sorted(maps.Keys(m.texts)) {
		text := m.texts[where]
		size += len(text)
		if leak(text, secret) == "" {
			t.Errorf("%s: the planted token is not found in %d bytes", where, len(text))
		}
		for _, hidden := range secrets {
			must.Equal(t, leak(text, hidden), "", "%s: %s is found", where, hidden)
		}
	}
	t.Logf("figure: %d tokens through their lives: no piece of them in %d kB of %s", len(tokens), size>>10,
		strings.Join(slices.Sorted(maps.Keys(m.texts)), ", "))
}

func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}
