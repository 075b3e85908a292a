package pets

import (
	"context"
	"fmt"

	"petgate/shared/database"
)

// seedNames are the names of the sample pets.
var seedNames = []string{
	"Rex", "Bella", "Luna", "Charlie", "Milo", "Daisy", "Oscar", "Lola", "Simba", "Nala", "Coco", "Rocky", "Ruby", "Leo",
	"Molly", "Max", "Zoe", "Toby", "Lucy", "Felix", "Ginger", "Hazel", "Jasper", "Kiwi", "Mango", "Nero", "Olive", "Pepper",
	"Smokey", "Willow",
}

// Seed migrates db and stores the sample pets if there are no pets.
func Seed(ctx context.Context, db *database.DB) error {
	if err := db.Migrate(ctx, Migrations); err != nil {
		return err
	}
	if err := seed(ctx, db); err != nil {
		return fmt.Errorf("pets: seed: %w", err)
	}
	return nil
}

func seed(ctx context.Context, db *database.DB) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	var empty bool
	if err := tx.GetContext(ctx, &empty, emptyQuery); err != nil || !empty {
		return err
	}
	for i, name := range seedNames {
		status := []Status{Available, Available, Pending, Available, Sold}[i%5]
		if _, err := tx.ExecContext(ctx, insertQuery, name, i%4+1, string(status)); err != nil {
			return err
		}
	}
	return tx.Commit()
}
