package pets

import (
	"log/slog"
	"strings"
	"testing"
	"time"

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
			listQuery, listByStatusQuery, getQuery, insertQuery, emptyQuery, requestQuery, rememberQuery, oldestQuery, forgetQuery,
		}
		if db.Dialect() == database.Postgres {
			queries = append(queries, lockRequestQuery)
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

// startSeeded returns a service with the pets of the demonstration. A list of 20 of them is 1.2 kB.
func startSeeded(t testing.TB, url string) *Service {
	t.Helper()
	db, err := database.OpenOrCreate(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := Seed(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s := Open(t.Context(), db, Config{Queue: 512, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		db.Close()
	})
	testkit.Eventually(t, 10*time.Second, "the service is ready", func() bool { return s.Ready() == nil })
	return s
}

func list(t testing.TB, s *Service, rc *fasthttp.RequestCtx) {
	rc.Request.SetRequestURI("/v1/pets?limit=20")
	rc.Response.Reset()
	s.handle(rc)
	if rc.Response.StatusCode() != 200 || len(rc.Response.Body()) < 1000 {
		t.Fatalf("%d %s", rc.Response.StatusCode(), rc.Response.Body())
	}
}

// Our own allocations for a list do not grow with its rows. The driver's do: a string and an interface for every text.
func TestListAllocations(t *testing.T) {
	s := startSeeded(t, testkit.Postgres(t))
	var rc fasthttp.RequestCtx
	const rows, textColumns, perText, fixed = 21, 2, 2, 18
	if n := testing.AllocsPerRun(200, func() { list(t, s, &rc) }); n > rows*textColumns*perText+fixed {
		t.Errorf("a list of 20 allocates %v times", n)
	}
}

func BenchmarkList(b *testing.B) {
	for name, url := range map[string]func(testing.TB) string{"postgres": testkit.Postgres, "sqlite": testkit.SQLite} {
		b.Run(name, func(b *testing.B) {
			s := startSeeded(b, url(b))
			b.ReportAllocs()
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				var rc fasthttp.RequestCtx
				for pb.Next() {
					list(b, s, &rc)
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
