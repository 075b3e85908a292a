package usage

import (
	"strings"
	"testing"

	"petgate/shared/keystore/schema"
	"petgate/shared/testkit"
)

// The calls of an operation are read through an index.
func TestOperationUsesIndex(t *testing.T) {
	t.Parallel()
	db := testkit.Open(t, testkit.SQLite(t), schema.Migrations)
	plan := testkit.Plan(t, db, schema.Of(db.Dialect()).Statement(operationUsage))
	if !strings.Contains(plan, "usage_hours_of_operation") || strings.Contains(plan, "SCAN usage_hours") {
		t.Errorf("it is read by %s", plan)
	}
}
