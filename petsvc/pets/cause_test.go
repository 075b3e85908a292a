package pets_test

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// petsvc does not start on the tables of another application or of a later version. It says so, and changes nothing.
func TestWrongDatabaseIsNamed(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db, err := database.OpenOrCreate(url)
		must.Do(t, err)
		defer db.Close()
		exec := func(statements ...string) {
			t.Helper()
			for _, statement := range statements {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
		}
		exec(`CREATE TABLE invoices (id BIGINT)`)
		r := launch(t, url, pets.Config{})
		named := func(text string) {
			t.Helper()
			testkit.Eventually(t, 10*time.Second, "not ready, because of "+text, func() bool {
				return !r.isReady() && strings.Contains(r.trouble(), text)
			})
		}
		named("tables such as invoices")
		if a := r.do(t, "GET", "/v1/pets", ""); a.status != 503 || a.code() != "database_unavailable" {
			t.Errorf("GET: %d %s", a.status, a.body)
		}
		if have, _, err := db.Schema(t.Context(), pets.Migrations); err != nil || have != 0 {
			t.Errorf("the tables were created in the database of another application: %d, %v", have, err)
		}

		exec(`DROP TABLE invoices`) // the running service goes on by itself
		testkit.Eventually(t, 10*time.Second, "ready", func() bool { return r.isReady() })
		exec(`INSERT INTO pets_schema (version_id, is_applied) VALUES (999, true)`)
		r = launch(t, url, pets.Config{})
		named("version 999, this program knows only")
		named("upgrade petsvc")
	})
}

// The tables cannot be created. The reason and its cure are named once.
func TestFailedMigrationIsNamed(t *testing.T) {
	u, err := url.Parse(testkit.Postgres(t))
	must.Do(t, err)
	settings := u.Query()
	settings.Set("default_transaction_read_only", "on")
	u.RawQuery = settings.Encode()
	r := launch(t, u.String(), pets.Config{})
	const cure = "it accepts no writes"
	testkit.Eventually(t, 10*time.Second, "the cure is named", func() bool {
		return !r.isReady() && strings.Contains(r.trouble(), cure)
	})
	if reason := r.trouble(); strings.Count(reason, cure) != 1 || !strings.Contains(reason, "migrate pets_schema") {
		t.Error(reason)
	}
}

// While the disk is full, pets are listed, and the log says why none is stored.
func TestFullDiskIsNamed(t *testing.T) {
	var log testkit.Output
	r := start(t, testkit.SQLite(t), pets.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	r.db.SetMaxOpenConns(1)
	r.add(t, "Rex", pets.Available)
	if _, err := r.db.Exec(`PRAGMA max_page_count = 1`); err != nil { // as many as there are
		t.Fatal(err)
	}
	failed := answer{status: 201}
	for range 200 {
		if failed = r.do(t, "POST", "/v1/pets", `{"name":"`+strings.Repeat("x", 100)+`","categoryId":1}`); failed.status != 201 {
			break
		}
	}
	if failed.status != 503 || failed.code() != "database_full" {
		t.Errorf("POST: %d %s", failed.status, failed.body)
	}
	if a := r.do(t, "GET", "/v1/pets", ""); a.status != 200 || !r.isReady() {
		t.Errorf("GET: %d, %s", a.status, r.trouble())
	}
	if !strings.Contains(log.String(), "full: make room") {
		t.Errorf("the cause is not named: %s", &log)
	}
	if _, err := r.db.Exec(`PRAGMA max_page_count = 1000`); err != nil {
		t.Fatal(err)
	}
	r.add(t, "Bella", pets.Available)
}
