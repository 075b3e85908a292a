package pets_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// petsvc does not start on the tables of another application or of a later version. It says so, and
// changes nothing.
func TestWrongDatabaseIsNamed(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url)
		exec(t, db, `CREATE TABLE invoices (id BIGINT)`)
		r := launch(t, t.Context(), url, pets.Config{})
		r.names(t, "tables such as invoices")
		r.do(t, "GET", "/v1/pets", "").is(t, "GET", 503, "database_unavailable")
		answerOf(t)(r.client.Get("http://pets/readyz")).is(t, "a gateway's check", 503, "")
		if have, _, err := db.Schema(t.Context(), pets.Migrations); err != nil || have != 0 {
			t.Errorf("the tables were created in the database of another application: %d, %v", have, err)
		}

		exec(t, db, `DROP TABLE invoices`) // the running service goes on by itself
		testkit.Eventually(t, time.Minute, "ready", r.isReady)
		exec(t, db, `INSERT INTO pets_schema (version_id, is_applied) VALUES (999, true)`)
		launch(t, t.Context(), url, pets.Config{}).names(t, "version 999, this program knows only 1: upgrade petsvc")
	})
}

func exec(t *testing.T, db *database.DB, statement string) {
	t.Helper()
	must.Get[sql.Result](t)(db.Exec(statement))
}

// names waits until the service is not ready for a cause.
func (r *rig) names(t *testing.T, cause string) {
	t.Helper()
	testkit.Eventually(t, time.Minute, "not ready, because of "+cause,
		func() bool { return strings.Contains(fmt.Sprint(r.Health()), cause) })
}

// The tables cannot be created. The reason and its cure are named once.
func TestFailedMigrationIsNamed(t *testing.T) {
	const cure = "it accepts no writes"
	r := launch(t, t.Context(), testkit.Postgres(t)+"&default_transaction_read_only=on", pets.Config{})
	r.names(t, cure)
	if reason := r.Health().Error(); strings.Count(reason, cure) != 1 ||
		!strings.Contains(reason, "migrate pets_schema") {
		t.Error(reason)
	}
}

// While the disk is full, pets are listed, and the log says why none is stored.
func TestFullDiskIsNamed(t *testing.T) {
	var log testkit.Output
	r := start(t, testkit.SQLite(t), pets.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	r.takeOneConnection(t)
	r.add(t, "Rex", pets.Available)
	exec(t, r.db, `PRAGMA max_page_count = 1`) // as many as there are
	large := `{"name":"` + strings.Repeat("x", 100) + `","categoryId":1}`
	failed := answer{status: 201}
	for n := 0; n < 200 && failed.status == 201; n++ {
		failed = r.do(t, "POST", "/v1/pets", large)
	}
	failed.is(t, "POST", 503, "database_full")
	r.do(t, "GET", "/v1/pets", "").is(t, "GET", 200, "")
	if !r.isReady() {
		t.Error(r.Health())
	}
	if !strings.Contains(log.String(), "full: make room") {
		t.Errorf("the cause is not named: %s", &log)
	}
	exec(t, r.db, `PRAGMA max_page_count = 1000`)
	r.add(t, "Bella", pets.Available)
}
