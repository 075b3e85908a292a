package main

import (
	"context"
	"fmt"

	"petgate/shared/database"
	"petgate/shared/keystore/schema"
)

type migrateCommand struct{}

type migrationView struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func (migrateCommand) Run(ctx context.Context, a *app) error {
	if err := a.openWith(database.OpenOrCreate); err != nil {
		return err
	}
	have, want, err := a.db.Schema(ctx, schema.Migrations)
	if err != nil {
		return err
	}
	if have > want {
		return fmt.Errorf("the database has schema %d, but this keyadmin knows schemas up to %d: use a newer keyadmin",
			have, want)
	}
	if err := a.db.Migrate(ctx, schema.Migrations); err != nil {
		return err
	}
	if have == want {
		a.note("The key tables are up to date: schema %d.", want)
	} else {
		a.note("Migrated the key tables from schema %d to %d.", have, want)
	}
	if a.asData() {
		return a.print(migrationView{From: have, To: want}, table{})
	}
	return nil
}
