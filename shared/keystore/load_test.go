package keystore

import (
	"testing"

	"github.com/jmoiron/sqlx"

	"petgate/shared/testkit"
)

// A connection whose transaction cannot be ended is closed: the next user would read the old state.
func TestFailedRollbackClosesTheConnection(t *testing.T) {
	db := testkit.Open(t, testkit.SQLite(t))
	snapshot := func(f func(q sqlx.QueryerContext)) {
		t.Helper()
		s := New(db, nil, nil, "test")
		if err := s.snapshot(t.Context(), func(q sqlx.QueryerContext) error { f(q); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	snapshot(func(sqlx.QueryerContext) {})
	before := db.Stats().OpenConnections
	snapshot(func(q sqlx.QueryerContext) {
		rows, err := q.QueryxContext(t.Context(), "ROLLBACK") // the rollback at the end then fails
		if err != nil {
			t.Fatal(err)
		}
		rows.Close()
	})
	if after := db.Stats().OpenConnections; before != 1 || after != 0 {
		t.Errorf("%d connections before a failed rollback, %d after it; want 1 and 0", before, after)
	}
}
