package pets

import (
	"context"
	"database/sql/driver"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/shared/database"
	"petgate/shared/testkit"
)

// What sqlx costs: a page of 21 rows and one row, read by the service and read from the driver's rows. A list of 20 is 1.2 kB.
func BenchmarkRead(b *testing.B) {
	db, err := database.OpenOrCreate(testkit.Postgres(b))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	s := Open(b.Context(), db, Config{Queue: 512, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	defer s.Shutdown(b.Context())
	for range 30 {
		if _, _, err := s.store.add(nil, NewPet{"Smokey", 1, Available}, nil); err != nil {
			b.Fatal(err)
		}
	}
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
