package e2e_test

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// console is an open session of the operators' console.
type console struct {
	http.Client
	at string // the address of its first page
}

// openConsole signs in. A gateway that waits for the database for too long refuses that with status 503; the next link is tried then.
func openConsole(t testing.TB, f *fleet.Fleet, p *fleet.Program) *console {
	t.Helper()
	c := &console{at: p.Admin + "/console/"}
	testkit.Eventually(t, readWithin, "the console can be opened", func() bool {
		_, code, _ := strings.Cut(strings.TrimSpace(f.MustKeyadmin("console")), "#") // a code is good for one attempt
		c.Jar, _ = cookiejar.New(nil)                                                // it never fails without options
		response, err := c.PostForm(c.at+"login", url.Values{"code": {code}})
		must.Do(t, err)
		defer response.Body.Close()
		isOpen := response.StatusCode == http.StatusOK && response.Request.URL.Path == "/console/"
		if !isOpen && response.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("signing in: %d at %s", response.StatusCode, response.Request.URL)
		}
		return isOpen
	})
	return c
}

// readWithin is how long a database that has just been filled may be too busy for the console.
const readWithin = 2 * time.Minute

// read reads a page, and returns how long that took. A page that waits for the database for too long on a busy machine says so with
// status 503.
func (c *console) read(t testing.TB, path string) (status int, page string, took time.Duration) {
	t.Helper()
	began := time.Now()
	response, err := c.Get(c.at + path)
	if err != nil {
		t.Error(err)
		return 0, "", 0
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("/console/%s: %v", path, err)
	}
	return response.StatusCode, string(body), time.Since(began)
}

// readConsole reads each kind of page of the console. While a database that has just been filled is too busy, a page says so with
// status 503: then it is asked for again.
func readConsole(t testing.TB, f *fleet.Fleet, gateway *fleet.Program) {
	t.Helper()
	c := openConsole(t, f, gateway)
	var slowest time.Duration
	read := func(path string) (page string) {
		t.Helper()
		testkit.Eventually(t, readWithin, "/console/"+path+" can be read", func() bool {
			status, text, took := c.read(t, path)
			page, slowest = text, max(slowest, took)
			return status == http.StatusOK
		})
		return page
	}
	_, rest, _ := strings.Cut(read("tenants"), `href="/console/tenants/`)
	tenant, _, found := strings.Cut(rest, `"`)
	if !found {
		t.Fatal("the page of tenants has no tenant")
	}
	for _, path := range []string{
		"", "tenants?after=ten_m", "tenants?search=zzzz", "tenants?format=csv", "tenants/" + tenant, "plans", "bans", "audit",
		"audit?after=2500", "audit?kind=tenant&since=1h", "audit?tenant=" + tenant, "gateways",
	} {
		read(path)
	}
	t.Logf("figure: the slowest page of the console takes %v", slowest.Round(time.Millisecond))
}

// seedEvents adds the events of all tenants and of some of the keys.
func seedEvents(t testing.TB, url string) {
	t.Helper()
	db, err := sql.Open("postgres", url)
	must.Do(t, err)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO events (id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json)
		SELECT (SELECT max(id) FROM events) + row_number() OVER (), md5(tenant_id || key_id), CAST(extract(epoch FROM now()) * 1000 AS BIGINT), 'keyadmin:root',
			CASE WHEN key_id = '' THEN 'tenant.created' ELSE 'key.created' END, tenant_id, key_id, '', '', '{}'
		FROM (SELECT id AS tenant_id, '' AS key_id FROM tenants UNION ALL (SELECT tenant_id, id FROM tenant_keys LIMIT 400000)) AS made`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
}
