package usage

const (
	// $1: tenant, $2: the first hour.
	usageOfTenant = `SELECT hour, key_id, operation, outcome, charged, is_test,
			CAST(SUM(requests) AS BIGINT) AS requests,
			CAST(SUM(more_units) AS BIGINT) AS more_units
		FROM usage_hours
		WHERE tenant_id = $1 AND hour >= $2
		GROUP BY hour, key_id, operation, outcome, charged, is_test
		ORDER BY hour, key_id, operation, outcome, charged`

	// For plots. $1: tenant, $2: the first hour, $3: period in ms, $4: key, or '' for all live
	// ones. Periods begin at multiples of $3.
	usageByPeriod = `SELECT hour / $3 * $3 AS start, operation, outcome, CAST(SUM(requests) AS BIGINT) AS requests
		FROM usage_hours
		WHERE tenant_id = $1 AND hour >= $2 AND ($4 = '' AND NOT is_test OR key_id = $4)
		GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`

	// The sums of a group of rows of usage.
	usageSums = `CAST(SUM(requests) AS BIGINT) AS requests,
		CAST(SUM(CASE WHEN charged THEN requests ELSE 0 END) AS BIGINT) AS charged,
		CAST(SUM(CASE WHEN charged THEN requests + more_units ELSE 0 END) AS BIGINT) AS units`

	// $1: tenant, $2: the first hour, $3: the length of a period in ms, $4: number of rows, $5: of
	// test keys.
	statement = `SELECT hour / $3 * $3 AS start, key_id, operation, outcome, ` + usageSums + `
		FROM usage_hours
		WHERE tenant_id = $1 AND hour >= $2 AND is_test = $5
		GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $4`

	// $1: the first hour, $2: the end, $3: number of rows. Of live keys.
	topUsage = `SELECT tenant_id,
			CAST(SUM(requests) AS BIGINT) AS requests,
			CAST(SUM(charged) AS BIGINT) AS charged,
			CAST(SUM(units) AS BIGINT) AS units,
			MAX(units) AS busiest_day
		FROM (
			SELECT tenant_id, ` + usageSums + `
			FROM usage_hours
			WHERE hour >= $1 AND hour < $2 AND NOT is_test
			GROUP BY tenant_id, hour / 86400000) AS of_days
		GROUP BY tenant_id
		ORDER BY units DESC, requests DESC, tenant_id LIMIT $3`

	// $1: the first hour. Of all tenants.
	usageOfAll = `SELECT hour AS start, outcome, CAST(SUM(requests) AS BIGINT) AS requests
		FROM usage_hours
		WHERE hour >= $1
		GROUP BY hour, outcome ORDER BY hour, outcome`

	// $1: the first hour, $2: the end, $3: number of rows. A report of the quota is neither served
	// nor refused.
	refusedMost = `SELECT tenant_id, outcome, CAST(SUM(requests) AS BIGINT) AS requests
		FROM usage_hours
		WHERE hour >= $1 AND hour < $2 AND outcome NOT IN ('ok', 'report')
		GROUP BY tenant_id, outcome
		ORDER BY 3 DESC, 1, 2 LIMIT $3`

	// By the part of its limit per day that each tenant's live keys were charged today. $1: the
	// first hour of the day, $2: number of rows.
	nearestToDay = `SELECT u.tenant_id
		FROM (
			SELECT tenant_id, SUM(requests + more_units) AS charged
			FROM usage_hours
			WHERE hour >= $1 AND charged AND NOT is_test
			GROUP BY tenant_id) AS u
		JOIN tenants t ON t.id = u.tenant_id
		JOIN plans p ON p.name = t.plan
		WHERE t.day_limit > 0 OR p.day_limit > 0
		ORDER BY u.charged * 1.0 / COALESCE(NULLIF(t.day_limit, 0), p.day_limit) DESC, 1 LIMIT $2`

	// By the part of its limit per month that each tenant was charged in its month, since its last
	// reset. $1: the day of the calendar month, $2, $3: the first hours of this calendar month and
	// of the one before, $4: number of rows.
	nearestToMonth = `SELECT u.tenant_id
		FROM (
			SELECT t.id, t.usage_since,
				COALESCE(NULLIF(t.month_limit, 0), p.month_limit) AS most,
				CASE WHEN t.month_starts <= $1 THEN CAST($2 AS BIGINT) ELSE CAST($3 AS BIGINT) END
					+ 86400000 * (COALESCE(NULLIF(t.month_starts, 0), 1) - 1) AS since
			FROM tenants t JOIN plans p ON p.name = t.plan
			WHERE t.month_limit > 0 OR p.month_limit > 0) AS m
		JOIN usage_hours u ON u.tenant_id = m.id AND u.hour >= m.since AND u.hour > m.usage_since - 3600000
			AND u.charged AND NOT u.is_test
		GROUP BY u.tenant_id, m.most
		ORDER BY SUM(u.requests + u.more_units) * 1.0 / m.most DESC, 1 LIMIT $4`

	// $1: rows with operation, $2: the first hour, $3: the first hour that counts as recent.
	operationUsage = `SELECT u.operation, u.tenant_id, COALESCE(t.name, '') AS tenant_name,
			u.key_id, COALESCE(k.name, '') AS key_name, u.recent, u.before
		FROM (
			SELECT operation, tenant_id, key_id,
				CAST(SUM(CASE WHEN hour >= $3 THEN requests ELSE 0 END) AS BIGINT) AS recent,
				CAST(SUM(CASE WHEN hour < $3 THEN requests ELSE 0 END) AS BIGINT) AS before
			FROM usage_hours
			WHERE hour >= $2 AND operation {listed}
			GROUP BY operation, tenant_id, key_id) AS u
		LEFT JOIN tenants t ON t.id = u.tenant_id
		LEFT JOIN tenant_keys k ON k.id = u.key_id
		ORDER BY u.operation, u.recent DESC, u.tenant_id, u.key_id`

	// $1: tenant, $2: the first hour.
	minutesOfTenant = `SELECT hour, gateway, attempts, is_test
		FROM usage_minutes
		WHERE tenant_id = $1 AND hour >= $2
		ORDER BY hour, gateway`

	// $1: instant in ms. The gaps that may contain something after it.
	gapsSince = `SELECT gateway, cause, since, seen_at, noted_at
		FROM usage_gaps
		WHERE noted_at > $1
		ORDER BY noted_at, gateway, incarnation`
)

const loadQuotas = `SELECT tenant_id AS name, record FROM quota_records`
