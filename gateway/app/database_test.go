package app_test

import (
	"database/sql"
	"net/http"
	"os"
	"strings"
	"testing"

	"petgate/shared/keystore/schema"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// named waits until /readyz has this status and both texts, and until the log has the second one.
func (r *running) named(t *testing.T, status int, cause, cure string) {
	t.Helper()
	r.await(t, status, cause, cure)
	testkit.Eventually(t, readyWithin, "the log names: "+cure, func() bool {
		return strings.Contains(r.log.String(), cure)
	})
}

// A wrong or damaged database is named at the start.
func TestWrongDatabaseIsNamed(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db := testkit.Open(t, url)
		must.Get[sql.Result](t)(db.Exec(`CREATE TABLE invoices (id BIGINT)`))
		r := start(t, url, nil)
		r.named(t, http.StatusServiceUnavailable, "tables such as invoices", "correct DATABASE_URL")
		r.end(t)
		must.Do(t, db.Migrate(t.Context(), schema.Migrations))
		must.Get[sql.Result](t)(db.Exec(`INSERT INTO keys_schema (version_id, is_applied) VALUES (999, true)`))
		r = start(t, url, nil)
		r.named(t, http.StatusServiceUnavailable, "version 999", "upgrade the program")
		r.end(t)
	})
	url := testkit.SQLite(t)
	must.Do(t, os.WriteFile(strings.TrimPrefix(url, "sqlite:"), []byte(strings.Repeat("not a database ", 100)), 0o600))
	r := start(t, url, nil)
	r.named(t, http.StatusServiceUnavailable, strings.TrimPrefix(url, "sqlite:"), "not a SQLite database")
	r.stop()
	<-r.ended // with an error: the quotas could not be saved
}

// A database file that is removed or replaced is named. The gateway serves what it has loaded, and
// follows the file that comes.
func TestRemovedDatabaseIsNamed(t *testing.T) {
	url := testkit.SQLite(t)
	path := strings.TrimPrefix(url, "sqlite:")
	move := func(from, to string) {
		t.Helper()
		for _, suffix := range []string{"-wal", "-shm", ""} {
			if err := os.Rename(from+suffix, to+suffix); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	db := testkit.Open(t, url, schema.Migrations)
	_, token := newKey(t, db)
	must.Do(t, db.Close())
	r := ready(t, url, nil)
	works := func() {
		t.Helper()
		expect(t, r.url+"/v1/pets", token, http.StatusOK)
	}
	works()
	move(path, path+".away")
	r.named(t, http.StatusOK, path+" was removed while it was in use", "put the file back")
	r.named(t, http.StatusOK, `"database","detail":"not read for `, "put the file back")
	works()
	testkit.Open(t, url) // an empty one
	r.await(t, http.StatusServiceUnavailable, "keyadmin migrate", "out of date")
	move(path, path+".empty")
	move(path+".away", path)
	testkit.Eventually(t, readyWithin, "the database is followed again", func() bool {
		response, body := get(t, r.admin+"/readyz", "")
		return response.StatusCode == http.StatusOK && !strings.Contains(body, `"database"`)
	})
	works()
	r.end(t)
}
