package database_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"petgate/shared/database"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func expectWake(t *testing.T, l *database.Listener, within time.Duration, after string) {
	t.Helper()
	select {
	case <-l.C:
	case <-time.After(within):
		t.Fatalf("no wake-up %v after %s", within, after)
	}
}

func TestListen(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		db := must.Get[*database.DB](t)(database.OpenOrCreate(url))
		defer db.Close()
		exec(t, db, `CREATE TABLE notes (id BIGINT)`)
		l := db.Listen("notes")
		defer l.Close()
		expectWake(t, l, time.Minute, "connecting")
		for range 3 {
			if db.Dialect() == database.Postgres {
				exec(t, db, `NOTIFY notes`)
			} else {
				exec(t, db, `INSERT INTO notes VALUES (1)`)
			}
			expectWake(t, l, time.Minute, "a change")
		}
	})
}

func TestListenOutlivesTheServer(t *testing.T) {
	server := testkit.StartPostgres(t)
	db := open(t, server.URL)
	l := db.Listen("notes")
	defer l.Close()
	expectWake(t, l, time.Minute, "connecting")
	server.Kill(t)
	server.Start(t)
	expectWake(t, l, time.Minute, "reconnecting")
	exec(t, db, `NOTIFY notes`)
	expectWake(t, l, time.Minute, "a notification")
}

func TestListenClosesAtOnce(t *testing.T) {
	server := testkit.StartPostgres(t)
	db := open(t, server.URL)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, c := range []struct {
		name    string
		prepare func(l *database.Listener)
	}{
		{"while connecting", func(*database.Listener) {}},
		{"when connected", func(l *database.Listener) { expectWake(t, l, time.Minute, "connecting") }},
		{"with a frozen server", func(l *database.Listener) {
			expectWake(t, l, time.Minute, "connecting")
			server.Pause(t)
		}},
		{"while connecting to a frozen server", func(*database.Listener) {}},
		{"without a server", func(*database.Listener) { server.Kill(t) }},
	} {
		l := db.Listen("notes")
		c.prepare(l)
		began := time.Now()
		l.Close()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: closing took %v", c.name, took)
		}
	}
}
