package e2e_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

const megabyte = 1 << 20

// What a gateway with a million keys may need.
const (
	massLoadMax     = 2 * time.Minute  // elapsed time, which includes the machine's other work
	massLoadCPUMax  = 25 * time.Second // of a processor: five times what it takes on an idle machine
	massResidentMax = 256 * megabyte
	bogusGrowthMax  = 10 * megabyte
	// The gateway's own reading of the database: its tail, its heartbeat and its usage statistics.
	idleTransactionsMax = 20 // a second
)

var (
	massTenants = testkit.Size(2_000, 100_000)
	massKeys    = testkit.Size(20_000, 1_000_000)
	massBogus   = testkit.Size(20_000, 1_000_000)
)

// bogusToken is well formed, but belongs to no key.
func bogusToken(t testing.TB) string {
	t.Helper()
	return must.Get[string](t)(apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live), rand.Reader))
}

// misspell makes a token's checksum wrong.
func misspell(token string) string {
	last := byte('0')
	if token[len(token)-1] == last {
		last = '1'
	}
	return token[:len(token)-1] + string(last)
}

// flood sends n requests, pipelined, over a few connections, and returns how many answers had each
// status.
func flood(t testing.TB, p *fleet.Program, n int, token func() string) map[int]int {
	t.Helper()
	const connections, depth = 8, 50
	statuses := map[int]int{}
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range connections {
		workers.Go(func() {
			c := p.Client()
			defer c.Close()
			seen := map[int]int{}
			for range n / connections / depth {
				var batch strings.Builder
				for range depth {
					batch.WriteString(
						"GET /v1/pets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token() + "\r\n\r\n",
					)
				}
				if err := c.Send(batch.String()); err != nil {
					t.Error(err)
					return
				}
				for range depth {
					a, err := c.Read()
					if err != nil {
						t.Error(err)
						return
					}
					seen[a.Status]++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for status, count := range seen {
				statuses[status] += count
			}
		})
	}
	workers.Wait()
	return statuses
}

// outcomes is the number of requests with one outcome.
func outcomes(t testing.TB, p *fleet.Program, outcome string) int {
	t.Helper()
	return int(p.Metric(t, "petgate_gateway_requests_total", `outcome="`+outcome+`"`))
}

// seed fills the tables with massTenants and massKeys.
func seed(t testing.TB, url string) {
	t.Helper()
	db := must.Get[*database.DB](t)(database.OpenPatient(url, false))
	defer db.Close()
	// The bits of IDs are spread as evenly as those of real ones, because gateways rely on that.
	id := func(prefix, hash string) string {
		text := "'" + prefix + "'"
		for i := range 16 {
			text += fmt.Sprintf(" || substr('0123456789abcdefghjkmnpqrstvwxyz', 1 + get_byte(%s, %d) %% 32, 1)", hash,
				i)
		}
		return text
	}
	// With OFFSET, Postgres computes the hashes once a row.
	hashes := fmt.Sprintf(
		`FROM (SELECT n, sha256(CAST('key ' || n AS bytea)) AS h, sha256(CAST('tenant ' || n %% %d AS bytea)) AS th
		FROM generate_series(0, $1 - 1) AS r(n) OFFSET 0) AS rows`,
		massTenants,
	)
	_, err := db.Exec(`INSERT INTO tenants (id, name, plan, minute_limit, day_limit, suspended, created_at)
		SELECT `+id("ten_", "th")+`, 'tenant ' || n, 'pro', 0, 0, false, 1 `+hashes, massTenants)
	must.Do(t, err)
	_, err = db.Exec(
		`INSERT INTO tenant_keys (id, tenant_id, hash, name, hint, environment, scopes, allow_list,
				created_at, expires_at, revoked_at, grace_ends_at, replaced_by, last_used_at)
		SELECT `+id("key_", "h")+`, `+id(
			"ten_", "th",
		)+`, h, 'default', 'abcd', 'live', 'pets:read pets:write', '', 1, 0, 0, 0, '', 0 `+hashes,
		massKeys,
	)
	must.Do(t, err)
}

// A gateway holds all keys, and unknown keys cost neither memory nor a query.
func TestManyKeysAndUnknownTokens(t *testing.T) {
	if !testkit.FullSize { // in full size, others would suffer
		t.Parallel()
	}
	redis, prefix := testkit.Redis(t)
	f := fleet.Start(t, fleet.Spec{Redis: redis, RedisPrefix: prefix, Upstreams: fleet.FixedUpstream(t)})
	g := f.AddGateway("GATEWAY_ACCESS_LOG=false")
	key := f.NewTenant("acme", fleet.Unlimited...)
	g.Stop()
	db := openDatabase(t, f)
	seed(t, f.Database)
	transactions := func() (n int) {
		t.Helper()
		must.Do(t,
			db.Get(&n, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`))
		return n
	}

	begun := time.Now()
	g.Launch(t)
	testkit.Eventually(t, massLoadMax, "the gateway has loaded everything", g.Ready)
	loaded, rss, cpu := time.Since(begun), g.ResidentBytes(t), g.ProcessorTime(t)
	must.Equal(t, g.Metric(t, "petgate_gateway_directory_keys", ""), float64(massKeys+1), "keys that the gateway holds")
	// Under load, the heap has the size that it reaches between two collections.
	if statuses := flood(t, g, massBogus/10, func() string { return key.Token }); statuses[200] != massBogus/10 {
		t.Errorf("answers to a known key: %v", statuses)
	}
	atWork, live := g.ResidentBytes(t), liveBytes(t, g)

	begun = time.Now()
	before := transactions()
	statuses := flood(t, g, massBogus, func() string { return bogusToken(t) })
	took := time.Since(begun)
	queries, resident, grown := transactions()-before, g.ResidentBytes(t)-atWork, liveBytes(t, g)-live
	refused := outcomes(t, g, "invalid_api_key") + outcomes(t, g, "too_many_failed_attempts")
	if statuses[401]+statuses[429] != massBogus || refused != massBogus {
		t.Errorf("answers to unknown tokens: %v; %d counted as such", statuses, refused)
	}

	g.Want(t, key.Token, 200, "")

	t.Logf("figure: a gateway with %d keys of %d tenants: ready after %v (%v of CPU), resident %d MB, %d MB at work",
		massKeys+1, massTenants+1, loaded.Round(10*time.Millisecond), cpu, rss/megabyte, atWork/megabyte)
	t.Logf(
		"figure: %d unknown tokens in %v: %d transactions of the database in that time, %+.1f MB live and %+.1f MB resident",
		massBogus, took.Round(100*time.Millisecond), queries, float64(grown)/megabyte, float64(resident)/megabyte,
	)
	if cpu > massLoadCPUMax || max(rss, atWork) > massResidentMax {
		t.Errorf("ready after %v of CPU, resident %d MB and %d MB at work; want at most %v and %d MB", cpu,
			rss/megabyte, atWork/megabyte, massLoadCPUMax, massResidentMax/megabyte)
	}
	if allowed := int(took.Seconds()+2) * idleTransactionsMax; queries > allowed || grown > bogusGrowthMax {
		t.Errorf("unknown tokens: %d transactions, want at most %d; %d MB, want at most %d", queries, allowed,
			grown/megabyte, bogusGrowthMax/megabyte)
	}
}

// liveBytes returns how much memory a gateway cannot do without: what a collection leaves. The
// resident memory also depends on the time until the next collection.
func liveBytes(t testing.TB, g *fleet.Program) int64 {
	t.Helper()
	g.AdminPage(t, "/debug/pprof/heap?gc=1")
	return int64(g.Metric(t, "go_memstats_heap_alloc_bytes", "") + g.Metric(t, "go_memstats_stack_inuse_bytes", ""))
}
