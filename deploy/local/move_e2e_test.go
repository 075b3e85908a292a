//go:build e2e

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"petgate/petsvc/pets"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

// A move is killed when it has written to a table of the target, for each table. Nothing of it is there, and the command can be repeated,
// also when only the pets were committed.
func TestMoveIsKilledAnywhere(t *testing.T) {
	url, binary := testkit.Postgres(t), testkit.Build(t, "petgate/deploy/local")
	newSource(t)
	before, err := os.ReadFile(databasePath)
	must.Do(t, err)
	db := openTarget(t, url)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec(`CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END'`)
	killed := 0
	for _, m := range []database.Migrations{pets.Migrations, keystore.Migrations} {
		must.Do(t, db.Migrate(t.Context(), m))
	}
	for _, m := range []database.Migrations{pets.Migrations, keystore.Migrations} {
		for _, table := range m.Tables {
			var rows int64
			withSource(t, func(source *database.DB) { rows = number(t, source, "SELECT COUNT(*) FROM "+table) })
			if rows == 0 {
				continue
			}
			holder, err := db.Begin()
			must.Do(t, err)
			defer holder.Rollback()
			if _, err := holder.Exec(`SELECT pg_advisory_xact_lock(7)`); err != nil {
				t.Fatal(err)
			}
			exec(`CREATE TRIGGER held AFTER INSERT ON ` + table + ` FOR EACH STATEMENT EXECUTE FUNCTION held()`)
			p := testkit.Start(t, binary, nil, "move", "--to", strings.Replace(url, "?", "?application_name=held&", 1))
			testkit.Eventually(t, time.Minute, "the move waits for "+table, func() bool {
				if code, ended := p.Wait(0); ended {
					t.Fatalf("it ended with exit code %d\n%s", code, p.Stderr)
				}
				return number(t, db, `SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'held' AND wait_event_type = 'Lock'`) == 1
			})
			p.Kill()
			killed++
			must.Do(t, holder.Rollback())
			testkit.Eventually(t, time.Minute, "the server ends the transactions", func() bool {
				return number(t, db, `SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'held'`) == 0
			})
			exec(`DROP TRIGGER held ON ` + table)
			for _, m := range []database.Migrations{pets.Migrations, keystore.Migrations} {
				if used, err := m.InUse(t.Context(), db); err != nil || used {
					t.Errorf("killed at %s: a part is there: %t, %v", table, used, err)
				}
			}
		}
	}
	if killed < 8 {
		t.Errorf("killed at only %d tables", killed)
	}
	if after, err := os.ReadFile(databasePath); err != nil || string(after) != string(before) {
		t.Errorf("the source has changed, or %v", err)
	}
	elsewhere := testkit.Postgres(t)
	move(t, mover{To: elsewhere, PetsTo: url}, "", "The pets are copied, compared and committed")
	move(t, mover{To: url}, "", "The pets are there already, with the same rows.\nThe keys are copied, compared and committed")
	move(t, mover{To: url}, "", "The keys are there already")
}

// What a tenant has left of its quotas, its key and its pets are the same after a move.
func TestMoveKeepsQuotas(t *testing.T) {
	l := newLocal(t)
	l.startReady(t)
	token := l.token(t)
	today := time.Now().UTC().YearDay()
	for range 7 {
		if response, body := l.call(t, token, http.MethodGet, "/v1/pets", ""); response.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", response.StatusCode, body)
		}
	}
	response, body := l.call(t, token, http.MethodPost, "/v1/pets", `{"name":"Kestrel","categoryId":1}`)
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", response.StatusCode, body)
	}
	last := response.Header
	l.Signal(syscall.SIGINT)
	if code := l.ExitCode(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	url := testkit.Postgres(t)
	p := testkit.Start(t, l.binary, nil, "move", "--to", url)
	if code := p.ExitCode(t); code != 0 {
		t.Fatalf("the move ends with %d\n%s%s", code, p.Stdout, p.Stderr)
	}
	t.Chdir(filepath.Join("..", ".."))
	f := fleet.Start(t, fleet.Spec{Database: url, Gateways: 1})
	reply := f.Gateways[0].Want(t, token, http.StatusOK, "")
	day := func(field string) string {
		_, day, _ := strings.Cut(field, `"day";r=`)
		day, _, _ = strings.Cut(day, ";")
		return day
	}
	was, is := day(last.Get("RateLimit")), day(reply.Header.Get("RateLimit"))
	if (was != "992" || is != "991") && time.Now().UTC().YearDay() == today { // at midnight, the day begins again
		t.Errorf("the day had %s requests left before the move, and %s after one more request", was, is)
	}
	if pet := number(t, openTarget(t, url), `SELECT COUNT(*) FROM pets WHERE name = 'Kestrel'`); pet != 1 {
		t.Errorf("%d pets named Kestrel", pet)
	}
}
