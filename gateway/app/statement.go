package app

import (
	"context"
	"fmt"
	"time"

	"petgate/gateway/answers"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
)

// statementConnections are the connections to Postgres for statements of usage. They are their own, so that no statement delays the
// directory.
const statementConnections = 2

// statements reads statements of usage from the database.
type statements struct{ store *keystore.Store }

// openStatements opens a pool for statements. It connects when the first statement is asked for.
func openStatements(cfg *Config, gateway string) (s statements, closePool func() error, err error) {
	db, err := database.Open(string(cfg.DatabaseURL))
	if err != nil {
		return statements{}, nil, err
	}
	if db.Dialect() == database.Postgres {
		db.SetMaxOpenConns(statementConnections)
		db.SetConnMaxIdleTime(time.Minute) // most gateways are rarely asked
	}
	return statements{keystore.New(db, nil, nil, gateway)}, db.Close, nil
}

// Statement implements answers.Statements.
func (s statements) Statement(ctx context.Context, t id.Tenant, since instant.Millis, period time.Duration, rowsMax int) (answers.Statement, error) {
	if err := s.store.CheckFile(); err != nil { // this pool has its own connections to the file
		return answers.Statement{}, fmt.Errorf("app: read usage: %w", err)
	}
	rows, through, err := s.store.Statement(ctx, t, since, period, rowsMax)
	if err != nil {
		return answers.Statement{}, fmt.Errorf("app: read usage: %w", err)
	}
	found := answers.Statement{Rows: make([]answers.Row, len(rows)), CompleteThrough: through}
	for i, r := range rows {
		found.Rows[i] = answers.Row(r)
	}
	return found, nil
}
