package pets_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// post adds a pet for the tenant acme with an Idempotency-Key.
func (r *rig) post(t testing.TB, key, name string) answer {
	t.Helper()
	return r.postBody(t, key, `{"name":"`+name+`","categoryId":1}`)
}

func (r *rig) postBody(t testing.TB, key, body string) answer {
	t.Helper()
	return r.do(t, "POST", "/v1/pets", body, "X-Tenant-Id: acme", "Idempotency-Key: "+key)
}

// expectRows checks how often each name is stored.
func expectRows(t testing.TB, r *rig, want map[string]int) {
	t.Helper()
	var names []string
	must.Do(t, r.db.Select(&names, `SELECT name FROM pets`))
	got := map[string]int{}
	for _, name := range names {
		got[name]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("stored: %v, want %v", got, want)
	}
}

// expectFirst checks that a pet was stored now.
func expectFirst(t testing.TB, got answer) answer {
	t.Helper()
	if got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%d %v %s, want a new pet", got.status, got.header, got.body)
	}
	return got
}

func expectReplay(t testing.TB, got, first answer) {
	t.Helper()
	at, want := got.header.Get("Location"), first.header.Get("Location")
	if got.status != 201 || got.body != first.body || at != want || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repetition got %+v, want %+v", got, first)
	}
}

func expectInProgress(t testing.TB, got answer) {
	t.Helper()
	got.is(t, "another one", 409, "request_in_progress") // and with Retry-After, which the document requires
}

func TestIdempotencyKey(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		r := start(t, url, pets.Config{})
		first := expectFirst(t, r.post(t, `"one"`, "Rex"))
		expectReplay(t, r.post(t, `"one"`, "Rex"), first)
		expectReplay(t, r.post(t, `one`, "Rex"), first)
		const sameMeaning = ` {"status": "available", "x": [], "categoryId": 1, "name": "\u0052ex"} `
		expectReplay(t, r.postBody(t, "one", sameMeaning), first)

		for _, body := range []string{
			`{"name":"Rexi","categoryId":1}`, `{"name":"Rex","categoryId":2}`,
			`{"name":"Rex","categoryId":1,"status":"sold"}`,
		} {
			r.postBody(t, "one", body).is(t, body, 422, "idempotency_key_reused")
		}
		expectRows(t, r, map[string]int{"Rex": 1})

		// Other tenants have keys of their own, and so have clients without a gateway.
		for tenant, key := range map[string]string{
			"X-Tenant-Id: umbrella": "one", "X-Other: none": "one",
			"X-Tenant-Id: acmeo": "ne", // the same characters, divided in another way
		} {
			key = "Idempotency-Key: " + key
			expectFirst(t, r.do(t, "POST", "/v1/pets", `{"name":"Ben","categoryId":1}`, tenant, key))
		}
		expectRows(t, r, map[string]int{"Rex": 1, "Ben": 3})

		// A request that fails keeps nothing.
		r.postBody(t, "two", `{"name":"Lola"}`).is(t, "an invalid pet", 400, "invalid_request")
		expectFirst(t, r.post(t, "two", "Lola"))

		again := start(t, url, pets.Config{})
		expectReplay(t, again.post(t, "one", "Rex"), first)
		expectRows(t, again, map[string]int{"Rex": 1, "Ben": 3, "Lola": 1})
	})
}

// After 24 hours, a key can be used for another pet, although its row is still there.
func TestIdempotencyKeyEnds(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		r := start(t, url, pets.Config{})
		r.post(t, "one", "Rex")
		age := func(by time.Duration) {
			t.Helper()
			exec(t, r.db, fmt.Sprint(`UPDATE pet_requests SET created_at = created_at - `, by.Milliseconds()))
		}
		age(24*time.Hour - time.Minute)
		r.post(t, "one", "Ben").is(t, "after almost 24 hours", 422, "idempotency_key_reused")
		age(time.Minute)
		second := expectFirst(t, r.post(t, "one", "Ben"))
		expectReplay(t, r.post(t, "one", "Ben"), second)
		expectRows(t, r, map[string]int{"Rex": 1, "Ben": 1})
	})
}

// Pet services whose clocks differ agree on the age of a key: it is measured by the database's
// clock. The second service's database is two days later.
func TestIdempotencyKeysAgeByTheDatabasesClock(t *testing.T) {
	u := testkit.Postgres(t)
	r := start(t, u, pets.Config{})
	r.post(t, "one", "Rex")
	exec(t, r.db, `CREATE SCHEMA later; CREATE FUNCTION later.now() RETURNS timestamptz STABLE LANGUAGE SQL
		AS 'SELECT pg_catalog.now() + interval ''2 days'''`)
	expectFirst(t, start(t, u+"&search_path=public,later,pg_catalog", pets.Config{}).post(t, "one", "Ben"))
}

// A failure to remove old keys is logged.
func TestRowsThatCannotBeRemoved(t *testing.T) {
	u, log := testkit.SQLite(t), new(testkit.Output)
	db := testkit.Open(t, u, pets.Migrations)
	exec(t, db, `INSERT INTO pet_requests (id, fingerprint, pet_id, created_at) VALUES (x'00', x'00', 1, 1);
		CREATE TRIGGER keep BEFORE DELETE ON pet_requests BEGIN SELECT RAISE(ABORT, 'kept'); END`)
	r := start(t, u, pets.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
	testkit.Eventually(t, patience, "the failure is logged", func() bool {
		return strings.Contains(log.String(), "old Idempotency-Keys could not be removed") &&
			gathered(t, r, "petgate_petsvc_busy_connections") == 0
	})
}

// While a request runs, another one with its key is refused: in the same process at once, without
// waiting for a connection, and in another process when the first has stored its pet.
func TestRequestInProgress(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, "postgres") {
			url += "&statement_timeout=60000" // the first request waits until the test has asked the others
		}
		services := []*rig{start(t, url, pets.Config{Queue: 100})}
		block := `INSERT INTO pets (name, category_id, status) VALUES ('Max', 1, 'sold')`
		if strings.HasPrefix(url, "postgres") {
			services = append(services, start(t, url, pets.Config{}))
			block = `LOCK TABLE pets IN EXCLUSIVE MODE`
		}
		blocker := must.Get[*database.DB](t)(database.OpenPatient(url, false))
		defer blocker.Close()
		tx := must.Get[*sql.Tx](t)(blocker.Begin())
		must.Get[sql.Result](t)(tx.Exec(block))
		answers := make(chan answer)
		for _, r := range services {
			go func() { answers <- r.post(t, "one", "Rex") }()
		}
		testkit.Eventually(t, patience, "the requests wait for the blocker", func() bool {
			if len(services) == 1 { // SQLite: the transaction cannot begin
				return gathered(t, services[0], "petgate_petsvc_busy_connections") == 1
			}
			waiting := 0
			must.Do(t, blocker.Get(&waiting, `SELECT count(*) FROM pg_locks
				WHERE NOT granted AND relation = 'pets'::regclass
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`))
			return waiting == len(services)
		})
		var refused answer
		testkit.Eventually(t, patience, "a refusal within a second", func() bool {
			began := time.Now()
			refused = services[0].post(t, "one", "Rex")
			return refused.status == 409 && time.Since(began) < time.Second
		})
		expectInProgress(t, refused)
		must.Do(t, tx.Rollback())
		var stored answer
		for range services {
			if a := <-answers; stored.status == 0 && a.status == 201 && a.header.Get("Idempotent-Replayed") == "" {
				stored = a
			} else {
				expectInProgress(t, a)
			}
		}
		for _, r := range services {
			expectReplay(t, r.post(t, "one", "Rex"), stored)
		}
		expectRows(t, services[0], map[string]int{"Rex": 1})
	})
}

// Two services, many clients, and connections to the database that break. Half of the clients have
// a key for each pet, and repeat the request until it is answered 201: the pet is stored once,
// where the answer says. The others have no key and do not repeat: what was answered 201 is stored
// once, with the code outcome_unknown once or not at all, and with any other code not at all.
func TestPetsAreStoredOnceWhileConnectionsBreak(t *testing.T) {
	proxied, proxy := through(t, testkit.Postgres(t))
	services := []*rig{start(t, proxied, pets.Config{Queue: 100}), start(t, proxied, pets.Config{Queue: 100})}
	const clients, each, perBreak = 8, 25, 4
	var running sync.WaitGroup
	var stored atomic.Int64
	var mu sync.Mutex
	last := map[string]answer{} // about each pet
	refusals := map[bool]int{}  // with and without a key
	for c := range clients {
		hasKey := c%2 == 0
		running.Go(func() {
			for pet, attempt, mine := 0, 0, 0; mine < each; attempt++ {
				r, name := services[attempt%2], fmt.Sprintf("pet %d of %d", pet, c)
				key := "X-Other: none"
				if hasKey {
					key = fmt.Sprintf("Idempotency-Key: %d-%d", c, pet)
				}
				a := r.do(t, "POST", "/v1/pets", `{"name":"`+name+`","categoryId":1}`, "X-Tenant-Id: acme", key)
				if a.status == 201 {
					stored.Add(1)
					mine++
				} else {
					testkit.Eventually(t, patience, "the database is back", func() bool { return r.isReady() })
				}
				if a.status == 201 || !hasKey {
					pet++
				}
				mu.Lock()
				last[name] = a
				if a.status != 201 {
					refusals[hasKey]++
				}
				mu.Unlock()
			}
		})
	}
	for next := int64(perBreak); next < clients*each; next = stored.Load() + perBreak {
		testkit.Eventually(t, patience, "pets are stored", func() bool { return stored.Load() >= next })
		proxy.Reset()
	}
	running.Wait()
	var rows []struct {
		ID   int64
		Name string
	}
	must.Do(t, services[0].db.Select(&rows, `SELECT id, name FROM pets`))
	count := map[string]int{}
	for _, row := range rows {
		count[row.Name]++
		a, want := last[row.Name], fmt.Sprint("/v1/pets/", row.ID)
		if at := a.header.Get("Location"); a.status == 201 && at != want {
			t.Errorf("%s is stored as %s, the client knows %s", row.Name, want, at)
		}
	}
	for name, a := range last {
		if n := count[name]; n > 1 || a.status == 201 && n != 1 ||
			a.status != 201 && (a.status != 503 || a.code() != "outcome_unknown" && n != 0) {
			t.Errorf("%s was answered %d %s and is stored %d times", name, a.status, a.body, n)
		}
	}
	if refusals[true] == 0 || refusals[false] == 0 {
		t.Errorf("%v requests were refused: the test shows nothing without any", refusals)
	}
}

func TestOldRequestsAreRemoved(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url, pets.Migrations)
		id := "CAST(n AS BLOB)"
		if db.Dialect() == database.Postgres {
			id = "decode(lpad(to_hex(n), 8, '0'), 'hex')"
		}
		const rows, kept = 3500, 500
		now := time.Now().UnixMilli()
		exec(t, db, fmt.Sprintf(`WITH RECURSIVE numbers(n)
			AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d)
			INSERT INTO pet_requests (id, fingerprint, pet_id, created_at)
			SELECT %s, %[2]s, 1, CASE WHEN n <= %d THEN %d ELSE %d - n END FROM numbers`,
			rows, id, kept, now, now-24*time.Hour.Milliseconds()))
		start(t, url, pets.Config{})
		testkit.Eventually(t, time.Minute, "the old rows are removed", func() bool {
			var n int
			must.Do(t, db.Get(&n, `SELECT count(*) FROM pet_requests`))
			if n < kept {
				t.Fatalf("%d rows are left, want %d", n, kept)
			}
			return n == kept
		})
	})
}
