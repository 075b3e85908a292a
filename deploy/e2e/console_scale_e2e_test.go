//go:build e2e

package e2e_test

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
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
		if err != nil {
			t.Fatal(err)
		}
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

// How long the pages of the console take with 100,000 tenants, 1,000,000 keys and 500,000 events, and what requests notice
// of somebody who reads one page after the other. The figures are printed; the aim is 100 ms a page.
func TestConsoleOfManyKeys(t *testing.T) {
	f := fleet.Start(t, fleet.Spec{
		Upstreams: fleet.FixedUpstream(t), Gateways: 1, GatewayEnv: []string{"GATEWAY_CONSOLE=true", "GATEWAY_ACCESS_LOG=false"},
	})
	gateway := f.Gateways[0]
	gateway.Stop()
	seed(t, f.Database)
	seedEvents(t, f.Database)
	gateway.Launch(t)
	testkit.Eventually(t, massLoadMax, "the gateway has loaded everything", gateway.Ready)
	c := openConsole(t, f, gateway)
	page := ""
	testkit.Eventually(t, readWithin, "the page of tenants can be read", func() bool {
		status, text, _ := c.read(t, "tenants")
		page = text
		return status == http.StatusOK
	})
	_, rest, _ := strings.Cut(page, `href="/console/tenants/`)
	tenant, _, found := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("the page of tenants has no tenant:\n%s", page)
	}
	paths := []string{
		"", "tenants", "tenants?after=ten_m", "tenants?search=zzzz", "tenants?format=csv", "tenants/" + tenant, "plans", "bans", "audit",
		"audit?after=250000", "audit?kind=tenant&since=1h", "audit?tenant=" + tenant, "gateways", "deprecated",
	}
	for _, path := range paths {
		var all []time.Duration
		answered := false
		for range 3 {
			status, _, took := c.read(t, path)
			all = append(all, took)
			answered = answered || status == http.StatusOK
		}
		if !answered {
			t.Errorf("/console/%s cannot be read", path)
		}
		slices.Sort(all)
		t.Logf("figure: /console/%s takes %v (median of 3)", path, all[1].Round(time.Millisecond))
	}

	key := f.NewTenant("acme", fleet.Unlimited...)
	const rounds, requests = 4, 1500
	var p99 [2][]time.Duration // without and with somebody at the console
	for round := range rounds {
		for turn := range 2 {
			isRead := (round+turn)%2 == 1
			stop := make(chan struct{})
			var reader sync.WaitGroup
			if isRead {
				reader.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
							c.read(t, paths[i%len(paths)])
						}
					}
				})
			}
			var all []time.Duration
			for range requests {
				began := time.Now()
				gateway.Want(t, key.Token, 200, "")
				all = append(all, time.Since(began))
			}
			close(stop)
			reader.Wait()
			slices.Sort(all)
			p99[turnOf(isRead)] = append(p99[turnOf(isRead)], all[requests*99/100])
		}
	}
	for i, what := range []string{"nobody", "somebody who reads one page after the other"} {
		slices.Sort(p99[i])
		t.Logf("figure: p99 of requests with %s at the console: %v (median of %d rounds of %d)", what, p99[i][rounds/2].Round(time.Microsecond), rounds, requests)
	}
}

func turnOf(isRead bool) int {
	if isRead {
		return 1
	}
	return 0
}

// seedEvents adds the events of all tenants and of some of the keys.
func seedEvents(t testing.TB, url string) {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO events (id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json)
		SELECT row_number() OVER (), md5(tenant_id || key_id), CAST(extract(epoch FROM now()) * 1000 AS BIGINT), 'keyadmin:root',
			CASE WHEN key_id = '' THEN 'tenant.created' ELSE 'key.created' END, tenant_id, key_id, '', '', '{}'
		FROM (SELECT id AS tenant_id, '' AS key_id FROM tenants UNION ALL (SELECT tenant_id, id FROM tenant_keys LIMIT 400000)) AS made`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
}
