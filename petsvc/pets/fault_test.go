package pets_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
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

// patience is how long a condition may take on a busy machine.
const patience = time.Minute

// expectAway checks that every operation is refused with a 503. Of some tries, one takes no longer
// than within: a service that waits takes longer in all of them, and a busy machine only in some.
func expectAway(t *testing.T, r *rig, within time.Duration, code string) {
	t.Helper()
	for _, c := range [][3]string{
		{"GET", "/v1/pets", ""}, {"GET", "/v1/pets/1", ""}, {"POST", "/v1/pets", `{"name":"Rex","categoryId":1}`},
	} {
		testkit.Eventually(t, patience, fmt.Sprintf("%s %s is refused within %v", c[0], c[1], within), func() bool {
			began := time.Now()
			r.do(t, c[0], c[1], c[2]).is(t, c[0]+" "+c[1], 503, code) // and Retry-After, which the document requires
			return time.Since(began) <= within
		})
	}
}

func expectBack(t *testing.T, r *rig) {
	t.Helper()
	testkit.Eventually(t, patience, "requests succeed again",
		func() bool { return r.do(t, "GET", "/v1/pets", "").status == 200 && r.isUp(t) })
}

// isUp reports whether the metric says that the database is available.
func (r *rig) isUp(t *testing.T) bool { return gathered(t, r, "petgate_petsvc_database_up") == 1 }

func TestServiceStartsBeforeItsDatabase(t *testing.T) {
	server := testkit.StartPostgres(t)
	server.Stop(t)
	r := launch(t, t.Context(), server.URL, pets.Config{})
	expectAway(t, r, time.Second, "database_unavailable")
	server.Start(t)
	expectBack(t, r)
	r.add(t, "Rex", pets.Available)
}

func TestDatabaseIsLost(t *testing.T) {
	server := testkit.StartPostgres(t)
	r := start(t, server.URL, pets.Config{})
	r.add(t, "Rex", pets.Available)
	// Programs are replaced one after the other: this one continues with later tables.
	exec(t, testkit.Open(t, server.URL), `INSERT INTO pets_schema (version_id, is_applied) VALUES (999, true)`)
	server.Kill(t)
	testkit.Eventually(t, patience, "the loss is noticed", func() bool {
		return r.do(t, "GET", "/v1/pets", "").status == 503 && !r.isReady() && !r.isUp(t)
	})
	expectAway(t, r, 500*time.Millisecond, "database_unavailable")
	server.Start(t)
	expectBack(t, r)
	server.Pause(t)
	testkit.Eventually(t, patience, "the freeze is noticed", func() bool { return !r.isReady() })
	expectAway(t, r, 500*time.Millisecond, "database_unavailable")
	server.Resume(t)
	expectBack(t, r)
	must.Equal(t, strings.Count(r.do(t, "GET", "/v1/pets", "").body, "Rex"), 1, "pets of this name")
}

func TestReadOnlyDatabase(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		r := start(t, url, pets.Config{})
		r.takeOneConnection(t)
		readOnly := `SET default_transaction_read_only = on`
		if r.db.Dialect() == database.SQLite {
			readOnly = `PRAGMA query_only = 1`
		}
		exec(t, r.db, readOnly)
		r.do(t, "POST", "/v1/pets", `{"name":"Rex","categoryId":1}`).is(t, "POST", 503, "database_unavailable")
		if a := r.do(t, "GET", "/v1/pets", ""); a.status != 200 || a.body != "[]" {
			t.Errorf("GET: %d %s", a.status, a.body)
		}
	})
}

// If connections and queue are full, further requests are refused at once. Requests in the queue
// are refused after a second.
func TestOverload(t *testing.T) {
	const queue = 4
	r := start(t, testkit.SQLite(t), pets.Config{Queue: queue})
	usable := int(gathered(t, r, "petgate_petsvc_usable_connections"))
	must.Equal(t, usable, r.db.Stats().MaxOpenConnections-1, "connections, without that of the watch")
	r.db.SetMaxOpenConns(usable + 2) // one more for the transaction of this test
	// The writer that all others wait for:
	tx := must.Get[*sql.Tx](t)(r.db.Begin())
	var running sync.WaitGroup
	var stored atomic.Int64
	post := func() {
		began := time.Now()
		a := r.do(t, "POST", "/v1/pets", `{"name":"Rex","categoryId":1}`)
		switch {
		case a.status == 201:
			stored.Add(1)
		case a.status == 503 && a.code() == "database_unavailable" && time.Since(began) > patience/3:
			// It waited for the lock until SQLite gave up, because this test was so slow.
		case a.status != 503 || a.code() != "overloaded":
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for range usable {
		running.Go(post)
	}
	testkit.Eventually(t, patience, "with a full queue, a request is refused within 500 ms", func() bool {
		for range queue {
			running.Go(post)
		}
		isFull := func() bool { return gathered(t, r, "petgate_petsvc_queue_requests") >= queue }
		if !testkit.Await(500*time.Millisecond, isFull) {
			return false
		}
		began := time.Now()
		r.do(t, "GET", "/v1/pets", "").is(t, "with a full queue", 503, "overloaded")
		return time.Since(began) <= 500*time.Millisecond
	})
	testkit.Eventually(t, patience, "the queue gives up",
		func() bool { return gathered(t, r, "petgate_petsvc_queue_requests") == 0 })
	must.Do(t, tx.Rollback())
	running.Wait()
	a := r.do(t, "GET", "/v1/pets", "")
	if got := int64(strings.Count(a.body, "Rex")); got != stored.Load() || got == 0 {
		t.Errorf("%d pets are stored, %d were answered so", got, stored.Load())
	}
}

// through returns a proxy in front of a Postgres database, and the URL of the database there.
func through(t *testing.T, direct string) (databaseURL string, proxy *testkit.Proxy) {
	t.Helper()
	u := must.Get[*url.URL](t)(url.Parse(direct))
	proxy = testkit.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	return u.String(), proxy
}

// If the connection breaks during the commit, the code says that the pet may have been stored.
// Here, it was.
func TestOutcomeIsUnknown(t *testing.T) {
	direct := testkit.Postgres(t)
	proxied, proxy := through(t, direct)
	r := start(t, proxied, pets.Config{})
	db := testkit.Open(t, direct)
	exec(t, db, `CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql
			AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON pets DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION linger()`)
	holds := must.Get[*sql.Tx](t)(db.Begin())
	defer holds.Rollback()
	must.Get[sql.Result](t)(holds.Exec(`SELECT pg_advisory_xact_lock(1)`))
	answered := make(chan answer)
	go func() { answered <- r.do(t, "POST", "/v1/pets", `{"name":"Rex","categoryId":1}`) }()
	testkit.Eventually(t, patience, "the commit is under way", func() (is bool) {
		must.Do(t, db.Get(&is, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`))
		return is
	})
	proxy.Reset()
	(<-answered).is(t, "POST", 503, "outcome_unknown")
	must.Do(t, holds.Rollback())
	testkit.Eventually(t, patience, "the pet is stored",
		func() bool { return strings.Contains(r.do(t, "GET", "/v1/pets", "").body, "Rex") })
}

func TestFileIsDeletedAndComesBack(t *testing.T) {
	u := testkit.SQLite(t)
	r := start(t, u, pets.Config{})
	r.add(t, "Rex", pets.Available)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(strings.TrimPrefix(u, "sqlite:") + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, patience, "the loss is noticed", func() bool { return !r.isReady() })
	expectAway(t, r, 500*time.Millisecond, "database_unavailable")
	launch(t, t.Context(), u, pets.Config{}) // creates a new file, and migrates it
	testkit.Eventually(t, patience, "the new file is used", func() bool {
		a := r.do(t, "GET", "/v1/pets", "")
		return a.status == 200 && a.body == "[]"
	})
}

// The first request waits until the state of the database is known, for at most a second. It is not
// refused in the meantime.
func TestFirstRequestsWaitForTheFirstLook(t *testing.T) {
	for range 3 {
		fresh := testkit.Postgres(t)
		began := time.Now()
		r := launch(t, t.Context(), fresh, pets.Config{})
		if a, took := r.do(t, "GET", "/v1/pets", ""), time.Since(began); a.status != 200 && took < time.Second {
			t.Fatalf("the first request, after %v: %d %s", took, a.status, a.body)
		}
	}
}
