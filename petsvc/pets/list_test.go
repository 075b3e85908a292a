package pets

import (
	"context"
	"database/sql/driver"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"petgate/shared/database"
	"petgate/shared/testkit"
)

func TestStatementsPrepareOnBothDatabases(t *testing.T) {
	testkit.EachDatabase(t, func(t *testing.T, url string) {
		db, err := database.OpenOrCreate(url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Migrate(t.Context(), Migrations); err != nil {
			t.Fatal(err)
		}
		queries := []string{
			listQuery, listByStatusQuery, getQuery, insertQuery, earlierQuery, rememberQuery, forgetQuery,
		}
		if db.Dialect() == database.Postgres {
			queries = append(queries, lockQuery)
		}
		for _, query := range queries {
			statement, err := db.Preparex(inDialect(db.Dialect(), query))
			if err != nil {
				t.Errorf("%s: %v", query, err)
				continue
			}
			statement.Close()
		}
	})
}

// startSeeded returns a service with 30 pets. A list of 20 of them is 1.2 kB.
func startSeeded(t testing.TB, url string) *Service {
	t.Helper()
	db, err := database.OpenOrCreate(url)
	if err != nil {
		t.Fatal(err)
	}
	s := Open(t.Context(), db, Config{Queue: 512, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		db.Close()
	})
	for range 30 {
		if _, _, err := s.store.add(nil, NewPet{"Smokey", 1, Available}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// What sqlx costs: a page of 21 rows and one row, read by the service and read from the driver's rows.
func BenchmarkRead(b *testing.B) {
	s := startSeeded(b, testkit.Postgres(b))
	fromDriver := func(text string, args ...driver.Value) (found []Pet, err error) {
		err = s.store.db.Each(context.Background(), func(row []driver.Value) error {
			found = append(found, Pet{row[0].(int64), NewPet{row[1].(string), row[2].(int64), Status(row[3].(string))}})
			return nil
		}, text, args...)
		return found, err
	}
	for name, read := range map[string]func() error{
		"list/sqlx": func() error { _, err := s.store.list(nil, query{limit: 20}); return err },
		"list/rows": func() error { _, err := fromDriver(listQuery, int64(0), int64(21)); return err },
		"get/sqlx":  func() error { _, err := s.store.get(nil, 1); return err },
		"get/rows":  func() error { _, err := fromDriver(getQuery, int64(1)); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := read(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func TestBodyOfAPetIsBounded(t *testing.T) {
	s := startSeeded(t, testkit.SQLite(t))
	for spaces, want := range map[int]int{petMax - 29: 201, petMax - 28: 413} {
		var rc fasthttp.RequestCtx
		rc.Request.Header.SetMethod("POST")
		rc.Request.SetRequestURI("/v1/pets")
		rc.Request.SetBodyString(`{"name":"Rex","categoryId":1}` + strings.Repeat(" ", spaces))
		s.handle(&rc)
		if got := rc.Response.StatusCode(); got != want {
			t.Errorf("a body of %d bytes: %d, want %d", len(rc.Request.Body()), got, want)
		}
	}
}
