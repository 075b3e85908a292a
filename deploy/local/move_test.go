package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"petgate/petsvc/pets"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// newSource changes to a directory with the data that a run of the product left.
func newSource(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	must.Do(t, os.WriteFile("go.mod", []byte("module petgate\n"), 0o644))
	withSource(t, func(db *database.DB) {
		ctx := t.Context()
		must.Do(t, db.Migrate(ctx, keystore.Migrations))
		must.Do(t, seedPets(ctx, db))
		for _, statement := range []string{
			`INSERT INTO pets (name, category_id, status) VALUES ('Zoë "the" cat', 1, 'sold'), ('removed', 1, 'sold')`,
			`DELETE FROM pets WHERE name = 'removed'`,
			`INSERT INTO pet_requests (id, fingerprint, pet_id, created_at) VALUES (x'00ff', x'', 1, 1)`,
		} {
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		store := keystore.New(db, nil, nil, "local")
		tenant, _, err := store.CreateTenant(ctx, keystore.TenantSpec{Name: "demo", Plan: "pro"})
		must.Do(t, err)
		k, _, _, err := store.CreateKey(ctx, keystore.KeySpec{Tenant: tenant.ID, Name: "demo"})
		must.Do(t, err)
		now := instant.Of(time.Now())
		must.Do(t, store.SaveQuotas(ctx, now, []keystore.QuotaRecord{{Tenant: tenant.ID, Record: []byte{1, 0, 255}}}))
		g := keystore.Registration{ID: "gw-1", Incarnation: "one"}
		if g.Generation, err = store.Register(ctx, g, nil); err != nil {
			t.Fatal(err)
		}
		usage := []keystore.UsageRow{{Tenant: tenant.ID, Key: k.ID, Operation: "listPets", Outcome: "ok", Charged: true, Requests: 7}}
		must.Do(t, store.AddUsage(ctx, g, 1, usage, nil))
		must.Do(t, store.SignOff(ctx, g))
	})
}

// withSource opens the source and closes it again.
func withSource(t *testing.T, f func(*database.DB)) {
	t.Helper()
	db, err := database.OpenOrCreate(databaseURL)
	must.Do(t, err)
	f(db)
	must.Do(t, db.Close())
}

func openTarget(t *testing.T, url string) *database.DB {
	t.Helper()
	// Patient: the server would end a transaction of a test that waits.
	db, err := database.OpenPatient(url, false)
	must.Do(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func number(t *testing.T, db *database.DB, query string) (n int64) {
	t.Helper()
	if err := db.Get(&n, query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// move runs a move and wants its error and its output to contain the given texts; without a text there is no error.
func move(t *testing.T, m mover, wantError, wantOut string) {
	t.Helper()
	var out bytes.Buffer
	m.out = &out
	err := m.run(t.Context())
	if wantError == "" && err != nil || wantError != "" && (err == nil || !strings.Contains(err.Error(), wantError)) {
		t.Errorf("the error is %v, want %q", err, wantError)
	}
	if !strings.Contains(out.String(), wantOut) {
		t.Errorf("the output lacks %q:\n%s", wantOut, &out)
	}
}

func TestMove(t *testing.T) {
	newSource(t)
	before, err := os.ReadFile(databasePath)
	must.Do(t, err)
	url := testkit.Postgres(t)
	move(t, mover{To: url, DryRun: true}, "", "the move creates them")
	db := openTarget(t, url)
	if n := number(t, db, `SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'`); n != 0 {
		t.Errorf("a dry run has created %d tables", n)
	}
	for _, m := range []database.Migrations{keystore.Migrations, pets.Migrations} {
		must.Do(t, db.Migrate(t.Context(), m))
	}
	move(t, mover{To: url, DryRun: true}, "", "not committed: this is a dry run")
	for query, want := range map[string]int64{
		`SELECT COUNT(*) FROM pets`: 0, `SELECT COUNT(*) FROM tenants`: 0, `SELECT COUNT(*) FROM plans`: 4,
	} {
		if n := number(t, db, query); n != want {
			t.Errorf("after a dry run: %s = %d, want %d", query, n, want)
		}
	}
	move(t, mover{To: url}, "", "var/petgate.db is unchanged")
	for query, want := range map[string]int64{
		`SELECT COUNT(*) FROM pets`:                                          31,
		`SELECT COUNT(*) FROM pet_requests WHERE id = '\x00ff'`:              1,
		`SELECT COUNT(*) FROM tenants WHERE name = 'demo' AND plan = 'pro'`:  1,
		`SELECT COUNT(*) FROM tenant_keys`:                                   1,
		`SELECT COUNT(*) FROM plans`:                                         4,
		`SELECT COUNT(*) FROM gateways`:                                      0,
		`SELECT SUM(requests)::BIGINT FROM usage_hours`:                      7,
		`SELECT COUNT(*) FROM quota_records WHERE record = '\x0100ff'`:       1,
		`SELECT COUNT(*) FROM pets WHERE name = 'Zoë "the" cat' AND id = 31`: 1,
	} {
		if n := number(t, db, query); n != want {
			t.Errorf("after the move: %s = %d, want %d", query, n, want)
		}
	}
	move(t, mover{To: url}, "", "there already, with the same rows")
	// The ID of a pet that was removed is not given again.
	if id := number(t, db, `INSERT INTO pets (name, category_id, status) VALUES ('new', 1, 'sold') RETURNING id`); id != 33 {
		t.Errorf("the next pet has the ID %d, want 33", id)
	}
	move(t, mover{To: url}, "pets has 32 rows, which are not those of the file", "")
	if after, err := os.ReadFile(databasePath); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the source has changed, or %v", err)
	}
}

// What a move must not touch is refused before anything is changed.
func TestMoveRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	url := testkit.Postgres(t)
	db := openTarget(t, url)
	move(t, mover{To: url}, "there is nothing to move", "")
	newSource(t)
	unlock, err := lock("127.0.0.1:8080")
	must.Do(t, err)
	move(t, mover{To: url}, "already running in this source tree, on 127.0.0.1:8080", "")
	unlock()
	unlock, err = lock(moving)
	must.Do(t, err)
	move(t, mover{To: url}, "is being moved", "")
	unlock()

	if _, err := db.Exec(`CREATE TABLE orders (id BIGINT)`); err != nil {
		t.Fatal(err)
	}
	move(t, mover{To: url}, "it has tables such as orders", "")
	if _, err := db.Exec(`DROP TABLE orders`); err != nil {
		t.Fatal(err)
	}

	// The keys are refused before the pets are committed.
	must.Do(t, db.Migrate(t.Context(), keystore.Migrations))
	store := keystore.New(db, nil, nil, "ada")
	if _, _, err := store.CreateTenant(t.Context(), keystore.TenantSpec{Name: "other", Plan: "free"}); err != nil {
		t.Fatal(err)
	}
	move(t, mover{To: url}, "tenants has 1 rows, which are not those of the file", "")
	if n := number(t, db, `SELECT COUNT(*) FROM pets`); n != 0 {
		t.Errorf("%d pets were copied", n)
	}

	withSource(t, func(source *database.DB) {
		g := keystore.Registration{ID: "gw-1", Incarnation: "killed"}
		if _, err := keystore.New(source, nil, nil, "local").Register(t.Context(), g, nil); err != nil {
			t.Fatal(err)
		}
	})
	move(t, mover{To: url}, "the gateway gw-1 has not stored all it had", "")
	withSource(t, func(source *database.DB) {
		if _, err := source.Exec(`DELETE FROM pets_schema WHERE version_id > 1`); err != nil {
			t.Fatal(err)
		}
	})
	move(t, mover{To: url}, "start `make run` once more", "")
}

// The command line takes no password and no other database.
func TestMoveSettings(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://petgate@db/petgate": "", "postgres://petgate:secret@db/petgate": "PGPASSWORD", "sqlite:other.db": "use postgres://",
	} {
		_, err := new(mover).parse([]string{"--to", url})
		text := ""
		if err != nil {
			text = err.Error()
		}
		if want == "" && text != "" || !strings.Contains(text, want) || strings.Contains(text, "secret") {
			t.Errorf("%s: %q, want %q", url, text, want)
		}
	}
}
