package app

import (
	"time"

	"petgate/shared/database"
	"petgate/shared/keystore"
)

// statementConnections are the connections to Postgres for statements of usage. They are their own, so that no statement delays the
// directory.
const statementConnections = 2

// openStatements opens a pool for statements. It connects when the first statement is asked for.
func openStatements(cfg *Config, gateway string) (s *keystore.Store, closePool func() error, err error) {
	db, err := database.Open(string(cfg.DatabaseURL))
	if err != nil {
		return nil, nil, err
	}
	if db.Dialect() == database.Postgres {
		db.SetMaxOpenConns(statementConnections)
		db.SetConnMaxIdleTime(time.Minute) // most gateways are rarely asked
	}
	return keystore.New(db, nil, nil, gateway), db.Close, nil
}
