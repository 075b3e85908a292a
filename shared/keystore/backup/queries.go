package backup

import (
	"petgate/shared/keystore"
)

// The statements of a restore. The rows of the backup are in temporary tables whose names begin
// with restored_.
const (
	isLive = `SELECT EXISTS (SELECT 1 FROM events) OR EXISTS (SELECT 1 FROM tenants)`

	// Tenants that are suspended here but not in the backup, and keys that the database refuses, or
	// will, and that the backup accepts or only disables. A deleted tenant's keys had ended. $1:
	// now.
	newerRefusals = `SELECT 'suspended' AS kind, t.id AS tenant_id, t.name AS tenant_name,
			'' AS key_id, '' AS key_name, 0 AS at,
			0 AS revoked_at, 0 AS disabled_at, 0 AS grace_ends_at, '' AS replaced_by
		FROM tenants t JOIN restored_tenants r ON r.id = t.id
		WHERE t.suspended AND NOT r.suspended
		UNION ALL
		SELECT
			CASE WHEN k.disabled_at <> 0 THEN 'disabled' WHEN k.revoked_at = 0 THEN 'rotated' ELSE 'revoked' END,
			r.tenant_id, t.name, r.id, r.name,
			CASE WHEN k.disabled_at <> 0 THEN k.disabled_at
				WHEN k.revoked_at = 0 THEN k.grace_ends_at
				ELSE COALESCE(k.revoked_at, $1) END,
			COALESCE(k.revoked_at, $1), COALESCE(k.disabled_at, 0), COALESCE(k.grace_ends_at, 0),
			COALESCE(k.replaced_by, '')
		FROM restored_tenant_keys r
			JOIN restored_tenants t ON t.id = r.tenant_id
			LEFT JOIN tenant_keys k ON k.id = r.id
		WHERE r.revoked_at = 0 AND CASE WHEN k.id IS NULL
			THEN EXISTS (SELECT 1 FROM events e WHERE e.tenant_id = r.tenant_id AND e.kind = 'tenant.deleted')
			ELSE k.revoked_at <> 0 OR r.disabled_at = 0 AND (k.disabled_at <> 0
				OR k.grace_ends_at <> 0 AND (r.grace_ends_at = 0 OR r.grace_ends_at > k.grace_ends_at)) END
		ORDER BY tenant_name, key_id`

	// $1: now. Current bans that end later than in the backup.
	newerBans = `SELECT ` + keystore.BanColumns + `, k.name AS key_name, t.name AS tenant_name
		FROM ` + keystore.BanTables + `
			JOIN tenants t ON t.id = k.tenant_id
			JOIN restored_tenant_keys rk ON rk.id = b.key_id
			LEFT JOIN restored_bans r ON r.key_id = b.key_id AND r.lifted_at = 0
		WHERE b.until > $1 AND b.lifted_at = 0 AND (r.until IS NULL OR r.until < b.until)
		ORDER BY t.name, b.key_id`

	// Whether the database and the backup have a change in common.
	isRelated = `SELECT EXISTS (
		SELECT 1 FROM events e JOIN restored_events r ON r.id = e.id AND r.uuid = e.uuid)`

	// The changes that the backup does not have.
	newerEvents = `SELECT kind, COUNT(*) AS number FROM events e
		WHERE NOT EXISTS (SELECT 1 FROM restored_events r WHERE r.id = e.id AND r.uuid = e.uuid)
		GROUP BY kind ORDER BY kind`

	// Adds keys to the rows of the backup: those that have replaced its keys since, and those that
	// have replaced these. %s: the columns.
	carryReplacements = `WITH RECURSIVE carried (id) AS (
			SELECT k.replaced_by FROM tenant_keys k JOIN restored_tenant_keys r ON r.id = k.id
			WHERE k.replaced_by <> '' AND k.replaced_by <> r.replaced_by
			UNION
			SELECT k.replaced_by FROM tenant_keys k JOIN carried c ON c.id = k.id
			WHERE k.replaced_by <> '')
		INSERT INTO restored_tenant_keys (%[1]s)
		SELECT %[1]s FROM tenant_keys
		WHERE id IN (SELECT id FROM carried)
			AND NOT EXISTS (SELECT 1 FROM restored_tenant_keys r WHERE r.id = tenant_keys.id)
		RETURNING id`

	// The last use of keys is usage, which a restore does not take back.
	keepLastUse = `UPDATE restored_tenant_keys AS r SET
			last_used_at = CASE WHEN k.last_used_at > r.last_used_at
				THEN k.last_used_at ELSE r.last_used_at END,
			last_refused_at = CASE WHEN k.last_refused_at > r.last_refused_at
				THEN k.last_refused_at ELSE r.last_refused_at END
		FROM tenant_keys k WHERE k.id = r.id`

	// $1: now. Receivers drop a correction whose number they know. The lost database, or another
	// one that was restored from the same backup, may have used the next numbers, but none above
	// the present time.
	skipSeals = `UPDATE usage_ledger
		SET seal = CASE WHEN seal < $1 THEN $1 ELSE seal + 1000000 END
		WHERE installation <> ''`
)

// The indexes for comparisons, and what the planner needs to use them. All names are those of
// temporary tables.
var indexRestored = []string{
	`CREATE UNIQUE INDEX restored_tenants_by_id ON restored_tenants (id)`,
	`CREATE UNIQUE INDEX restored_tenant_keys_by_id ON restored_tenant_keys (id)`,
	`CREATE UNIQUE INDEX restored_bans_by_key ON restored_bans (key_id)`,
	`CREATE UNIQUE INDEX restored_events_by_id ON restored_events (id)`,
	`ANALYZE restored_tenants`,
	`ANALYZE restored_tenant_keys`,
	`ANALYZE restored_bans`,
	`ANALYZE restored_events`,
}
