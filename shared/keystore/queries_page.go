package keystore

// Statements for pages of lists. Each page begins after the last row of the page before it, so a page far from the first costs no more.

const (
	// $1: the name of the last tenant before, $2: a pattern for names in lower case, $3: an ID, or '', $4: number of rows.
	tenantsFound = selectTenants + ` WHERE name > $1 AND (LOWER(name) LIKE $2 ESCAPE '\' OR id = $3) ORDER BY name LIMIT $4`

	tenantsByPlan = `SELECT plan, COUNT(*) AS tenants FROM tenants GROUP BY plan`

	// The newest first. $1: tenant, $2, $3: creation and ID of the last key before, $4: number of rows.
	keysFound = selectKeys + ` WHERE tenant_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4`

	// $1: now, $2: tenant, or '' for all, $3, $4: end and key of the last ban before, $5: number of rows.
	bansFound = `SELECT ` + banColumns + `, k.name AS key_name, t.name AS tenant_name
		FROM ` + banTables + ` JOIN tenants t ON t.id = k.tenant_id
		WHERE b.until > $1 AND b.lifted_at = 0 AND (k.tenant_id = $2 OR $2 = '') AND (b.until, b.key_id) > ($3, $4)
		ORDER BY b.until, b.key_id LIMIT $5`

	// $1: rows with tenantId, $2: the first hour.
	outcomesOfTenants = `SELECT tenant_id, outcome, CAST(SUM(requests) AS BIGINT) AS requests FROM usage_hours
		WHERE hour >= $2 AND tenant_id IN (SELECT value->>'tenantId' FROM {rows}) GROUP BY tenant_id, outcome`
)
