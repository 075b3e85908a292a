package usage

// The statements of the export of usage. Calls with test keys are on no bill.
const (
	// The instant up to which all usage is stored.
	storedThrough = `SELECT MIN(t) FROM (SELECT usage_through AS t FROM gateways UNION ALL SELECT {now}) AS g`

	// $1: the name of the installation if it has none, $2: the hours before are sealed.
	sealHours = `UPDATE usage_ledger SET
			installation = CASE WHEN installation = '' THEN $1 ELSE installation END,
			seal = seal + 1,
			through = CASE WHEN through < $2 THEN $2 ELSE through END
		RETURNING installation, seal, through`

	// $1: hour.
	nextUsageHour = `SELECT COALESCE(MIN(hour), 0) FROM usage_hours WHERE hour >= $1`

	// The rows after an operation of a tenant, or after all its operations. $1: hour, $2: tenant,
	// $3: operation, or NULL for all, $4: number of rows.
	usageOfHour = `SELECT hour, tenant_id, operation, correction, ` + usageSums + `
		FROM usage_hours
		WHERE hour = $1
			AND tenant_id >= $2 AND (tenant_id > $2 OR operation > $3)
			AND correction = 0 AND NOT is_test
		GROUP BY hour, tenant_id, operation, correction
		ORDER BY tenant_id, operation LIMIT $4`

	// $1 to $4: a correction, $5: the number of a seal, $6: the first hour, $7: the end, $8: number
	// of rows. Corrections after the given one.
	correctionsOf = `SELECT hour, tenant_id, operation, correction, ` + usageSums + `
		FROM usage_hours
		WHERE correction > 0
			AND (correction, hour, tenant_id, operation) > ($1, $2, $3, $4)
			AND correction < $5
			AND hour >= $6 AND hour < $7 AND NOT is_test
		GROUP BY hour, tenant_id, operation, correction
		ORDER BY correction, hour, tenant_id, operation LIMIT $8`

	// $1: destination.
	cursorOf = `SELECT destination, since, hour, tenant_id, seal FROM usage_exports WHERE destination = $1`

	insertCursor = `INSERT INTO usage_exports (destination, since, hour, tenant_id, seal, moved_at)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (destination) DO NOTHING`

	// $1: destination, $2 to $4: where it is, $5 to $8: where it goes, $9: now.
	moveCursor = `UPDATE usage_exports SET since = $5, hour = $6, tenant_id = $7, seal = $8, moved_at = $9
		WHERE destination = $1 AND hour = $2 AND tenant_id = $3 AND seal = $4`
)
