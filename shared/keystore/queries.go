package keystore

// The statements. One text serves both databases. Placeholders stand for what differs: {now} is the
// database's clock in ms. {rows} turns the parameter $1, a JSON array, into rows with one column
// named value. {record} is the field record of such a row, decoded from hexadecimal, and {hash} is
// its field hash. {listed} says that the value before it is the field operation of one of these
// rows. {escape} makes the backslash the character that escapes in a pattern, as it is in
// PostgreSQL.

// The writers' lock. The numbers of locks must not change: all writers of one database must use the
// same.
const lockPostgres = `SELECT pg_advisory_xact_lock(123581046915073)`

// A change of one record shares the lock until its turn to draw an event's ID. From then until its
// commit, the database does not wait for the program. The notification is sent when the transaction
// commits.
const (
	shareLockPostgres = `SELECT pg_advisory_xact_lock_shared(123581046915073)`

	turnPostgres = `SELECT 0 FROM pg_advisory_xact_lock(123581046915075), pg_notify('petgate_events', '')`
)

// Only one gateway at a time adds usage. Two of them could update the same rows in different orders
// and deadlock.
const lockUsagePostgres = `SELECT pg_advisory_xact_lock(123581046915074)`

// A full load may take longer than the statement timeout.
const patiencePostgres = `SET LOCAL statement_timeout = 0`

const (
	selectPlans = `SELECT name, minute_limit AS "limits.minute", day_limit AS "limits.day", month_limit AS "limits.month",
		test_minute_limit AS "test.minute", created_at FROM plans`

	plansByName = selectPlans + ` ORDER BY name`

	// $1: name.
	planByName = selectPlans + ` WHERE name = $1`
)

const (
	selectTenants = `SELECT id, name, plan, minute_limit AS "override.minute", day_limit AS "override.day",
		month_limit AS "override.month", month_starts, suspended, created_at FROM tenants`

	// $1: ID.
	tenantByID = selectTenants + ` WHERE id = $1`

	// $1: name.
	tenantByName = selectTenants + ` WHERE name = $1`
)

const (
	selectKeys = `SELECT k.id, k.tenant_id, k.name, k.hint, k.environment, k.scopes, k.allow_list, k.created_at, k.expires_at, k.revoked_at,
		k.grace_ends_at, k.replaced_by, k.last_used_at, k.last_refused_at, k.minute_limit AS "limits.minute", k.day_limit AS "limits.day" FROM tenant_keys k`

	// $1: ID.
	keyByID = selectKeys + ` WHERE id = $1`

	// $1: hash.
	keyByHash = selectKeys + ` WHERE hash = $1`
)

const (
	banColumns = `b.key_id, k.tenant_id, b.until, b.automatic, b.notice, b.reason, b.imposed_by, b.imposed_at`

	banTables = `bans b JOIN tenant_keys k ON k.id = b.key_id`

	// $1: now.
	countBans = `SELECT COUNT(*) FROM bans WHERE until > $1 AND lifted_at = 0`

	// $1: key. Its latest ban, current or not.
	banByKey = `SELECT ` + banColumns + `, b.lifted_at FROM ` + banTables + ` WHERE b.key_id = $1`

	upsertBan = `INSERT INTO bans (key_id, until, automatic, notice, reason, imposed_by, imposed_at, lifted_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0)
		ON CONFLICT (key_id) DO UPDATE SET until = excluded.until, automatic = excluded.automatic, notice = excluded.notice,
			reason = excluded.reason, imposed_by = excluded.imposed_by, imposed_at = excluded.imposed_at, lifted_at = 0`

	// $1: key, $2: now.
	liftBan = `UPDATE bans SET lifted_at = $2 WHERE key_id = $1`
)

const (
	// $1: instant in ms, $2: UUID.
	eventByUUID = `SELECT COALESCE(MAX(id), 0) FROM events WHERE at = $1 AND uuid = $2`

	// $1: ID, $2: UUID.
	hasEvent = `SELECT EXISTS (SELECT 1 FROM events WHERE id = $1 AND uuid = $2)`

	lastEvent = `SELECT id, uuid FROM events ORDER BY id DESC LIMIT 1`
)

// What a gateway keeps in memory.
const (
	loadPlans = `SELECT name, minute_limit, day_limit, month_limit, test_minute_limit FROM plans`

	loadTenants = `SELECT id, plan, minute_limit, day_limit, month_limit, month_starts, suspended, usage_since FROM tenants`

	loadKeys = `SELECT hash, id, tenant_id, environment, scopes, allow_list, name, replaced_by, expires_at, revoked_at, grace_ends_at,
			minute_limit, day_limit FROM tenant_keys`

	// $1: instant in ms. The bans that end later.
	loadBans = `SELECT key_id, until, automatic, notice FROM bans WHERE lifted_at = 0 AND until > $1`

	countRows = `SELECT (SELECT COUNT(*) FROM tenants), (SELECT COUNT(*) FROM tenant_keys)`

	// The events from $1 on, each with the current rows of its tenant, plan, key and ban, or NULL.
	// Event $1 comes first, which shows that it still exists. The end of a lifted ban is 0.
	tailEvents = `SELECT e.id, e.uuid, e.kind, e.tenant_id,
			p.name, p.minute_limit, p.day_limit, p.month_limit, p.test_minute_limit,
			t.id, t.plan, t.minute_limit, t.day_limit, t.month_limit, t.month_starts, t.suspended, t.usage_since,
			k.hash, k.id, k.tenant_id, k.environment, k.scopes, k.allow_list, k.name, k.replaced_by,
			k.expires_at, k.revoked_at, k.grace_ends_at, k.minute_limit, k.day_limit,
			b.key_id, CASE WHEN b.lifted_at > 0 THEN 0 ELSE b.until END, b.automatic, b.notice
		FROM (SELECT * FROM events WHERE id >= $1 ORDER BY id LIMIT `

	tailJoins = `) e
		LEFT JOIN tenants t ON t.id = e.tenant_id
		LEFT JOIN plans p ON p.name = COALESCE(t.plan, e.plan)
		LEFT JOIN tenant_keys k ON k.id = e.key_id
		LEFT JOIN bans b ON b.key_id = e.key_id
		ORDER BY e.id`

	// $1: the last event read. The limit is a constant, so that the planner expects few rows and
	// uses the indexes.
	tailFew = tailEvents + `8` + tailJoins

	// $1: the last event read, $2: number of rows.
	tailMany = tailEvents + `$2` + tailJoins
)

const (
	// Makes the generation larger than before and larger than $1. It locks the row, so
	// registrations and removals do not overlap.
	growGeneration = `UPDATE gateway_registry SET generation = CASE WHEN generation > $1 THEN generation ELSE $1 END + 1
		RETURNING generation`

	// Committed before a gateway loads. From then on changes wait for the process. A process that
	// was removed before continues with the number of its last batch. $1: ID, $2: incarnation, $3:
	// generation, $4: address, $5: maximum age, $6: all that it did before this instant is stored.
	register = `INSERT INTO gateways
			(id, incarnation, generation, admin_address, applied_event, registered_at, seen_at, max_age, usage_batch, usage_through)
		VALUES ($1, $2, $3, $4, 0, {now}, {now}, $5,
			COALESCE((SELECT usage_batch FROM usage_gaps WHERE gateway = $1 AND incarnation = $2), 0), $6)
		ON CONFLICT (id, incarnation) DO UPDATE SET generation = excluded.generation, admin_address = excluded.admin_address,
			applied_event = 0, registered_at = excluded.registered_at, seen_at = excluded.seen_at, max_age = excluded.max_age,
			usage_through = excluded.usage_through`

	// $1: ID, $2: incarnation, $3: generation, $4: last event applied, $5: that event's UUID (''
	// before the first), $6: all that it did before this instant is stored. Changes nothing if a
	// fail-over has lost the event: its ID will be used again.
	//
	// Not with synchronous_commit = off: a gateway that has the answer serves for its maximum age,
	// so a crash of the database must not take the heartbeat back. A watcher would fence the
	// gateway too early.
	heartbeat = `UPDATE gateways SET applied_event = $4, seen_at = {now}, usage_through = $6
		WHERE id = $1 AND incarnation = $2 AND generation = $3 AND COALESCE((SELECT uuid FROM events WHERE id = $4), '') = $5
			AND NOT EXISTS (SELECT 1 FROM gateways s WHERE s.id = $1 AND s.generation > $3)
		RETURNING (SELECT generation FROM gateway_registry), {now}`

	// $1: ID, $2: incarnation, $3: a Document.
	describeGateway = `UPDATE gateways SET document = $3 WHERE id = $1 AND incarnation = $2`

	// $1: ID, $2: incarnation.
	deleteProcess = `DELETE FROM gateways WHERE id = $1 AND incarnation = $2`

	// Deletes the process only if it has sent no heartbeat after $3. $1: ID, $2: incarnation, $3:
	// its last heartbeat, $4: its maximum age.
	deleteSilent = deleteProcess + ` AND seen_at = $3 AND max_age = $4`

	selectGateways = `SELECT g.id, g.incarnation, g.generation, g.admin_address, g.applied_event, g.registered_at, g.seen_at,
		{now} - g.seen_at AS age, g.max_age, g.usage_through, g.document, g.generation < MAX(g.generation) OVER (PARTITION BY g.id) AS replaced FROM gateways g`

	gatewaysByID = selectGateways + ` ORDER BY g.id, g.generation`

	// $1: ID.
	gatewayByID = selectGateways + ` WHERE g.id = $1 ORDER BY g.generation`

	// $1: incarnation, $2: text.
	leaveUnreported = `INSERT INTO unreported_requests (incarnation, requests) VALUES ($1, $2) ON CONFLICT (incarnation) DO NOTHING`

	unreportedRequests = `SELECT requests FROM unreported_requests ORDER BY incarnation`

	takeUnreported = `DELETE FROM unreported_requests RETURNING requests`
)

const (
	// Claims a batch. Changes no row if the batch was added before. $1: gateway, $2: incarnation,
	// $3: batch.
	claimUsage = `UPDATE gateways SET usage_batch = $3 WHERE id = $1 AND incarnation = $2 AND usage_batch < $3`

	// $1: rows of UsageRow that differ in more than their numbers. What comes after its hour was
	// sealed is a correction. Files of earlier gateways do not say what is a test; the keys do,
	// unless their tenant was deleted.
	addUsage = `INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests, more_units, is_test)
		SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), value->>'operation',
			CASE WHEN CAST(value->>'hour' AS BIGINT) < (SELECT through FROM usage_ledger) THEN (SELECT seal FROM usage_ledger) ELSE 0 END,
			CAST(value->>'charged' AS BOOLEAN), COALESCE(value->>'keyId', ''), value->>'outcome',
			CAST(value->>'requests' AS BIGINT), COALESCE(CAST(value->>'moreUnits' AS BIGINT), 0),
			COALESCE(CAST(value->>'test' AS BOOLEAN), false)
				OR EXISTS (SELECT 1 FROM tenant_keys k WHERE k.id = value->>'keyId' AND k.environment = 'test')
		FROM {rows} WHERE true
		ON CONFLICT (tenant_id, hour, operation, correction, charged, key_id, outcome) DO UPDATE SET
			requests = usage_hours.requests + excluded.requests, more_units = usage_hours.more_units + excluded.more_units`

	// $1: rows of minuteRows, $2: gateway.
	addMinutes = `INSERT INTO usage_minutes (tenant_id, hour, gateway, attempts, is_test)
		SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), CAST($2 AS TEXT), value->>'attempts',
			COALESCE(CAST(value->>'test' AS BOOLEAN), false) FROM {rows} WHERE true
		ON CONFLICT (tenant_id, hour, gateway) DO UPDATE SET attempts = usage_minutes.attempts || excluded.attempts`

	// $1: rows of UsageRow. A request used its key if it was charged, or if its answer was free, as
	// a report of the quota. Otherwise it was refused. Updates each of the two times at most once a
	// minute, so that the row of a busy key is not rewritten every few seconds.
	touchKeys = `UPDATE tenant_keys SET last_used_at = CASE WHEN last_used_at < u.used_at THEN u.used_at ELSE last_used_at END,
			last_refused_at = CASE WHEN last_refused_at < u.refused_at THEN u.refused_at ELSE last_refused_at END
		FROM (SELECT key_id, MAX(CASE WHEN used THEN at ELSE 0 END) AS used_at, MAX(CASE WHEN used THEN 0 ELSE at END) AS refused_at
			FROM (SELECT value->>'keyId' AS key_id, CAST(value->>'lastAt' AS BIGINT) AS at,
				CAST(value->>'charged' AS BOOLEAN) OR value->>'outcome' IN ('ok', 'report') AS used FROM {rows}) AS requests GROUP BY key_id) AS u
		WHERE tenant_keys.id = u.key_id AND (last_used_at <= u.used_at - 60000 OR last_refused_at <= u.refused_at - 60000)`

	// $1: rows with tenantId, $2: the first hour that is kept. 400 days are always kept, as in
	// pruneGaps: a gateway in wrong hands cannot delete them.
	pruneUsage = `DELETE FROM usage_hours WHERE tenant_id IN (SELECT value->>'tenantId' FROM {rows}) AND hour < $2 AND hour < {now} - 34560000000`

	// $1: rows with tenantId, $2: the first hour that is kept. 34 days are always kept.
	pruneMinutes = `DELETE FROM usage_minutes WHERE tenant_id IN (SELECT value->>'tenantId' FROM {rows}) AND hour < $2 AND hour < {now} - 2937600000`

	// $1: tenant, $2: the first hour.
	usageOfTenant = `SELECT hour, key_id, operation, outcome, charged, is_test, CAST(SUM(requests) AS BIGINT) AS requests,
			CAST(SUM(more_units) AS BIGINT) AS more_units
		FROM usage_hours WHERE tenant_id = $1 AND hour >= $2
		GROUP BY hour, key_id, operation, outcome, charged, is_test ORDER BY hour, key_id, operation, outcome, charged`

	// For plots. $1: tenant, $2: the first hour, $3: period in ms, $4: key, or '' for all live
	// ones. Periods begin at multiples of $3.
	usageByPeriod = `SELECT hour / $3 * $3 AS start, operation, outcome, CAST(SUM(requests) AS BIGINT) AS requests
		FROM usage_hours WHERE tenant_id = $1 AND hour >= $2 AND ($4 = '' AND NOT is_test OR key_id = $4) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`

	// The sums of a group of rows of usage.
	usageSums = `CAST(SUM(requests) AS BIGINT) AS requests, CAST(SUM(CASE WHEN charged THEN requests ELSE 0 END) AS BIGINT) AS charged,
		CAST(SUM(CASE WHEN charged THEN requests + more_units ELSE 0 END) AS BIGINT) AS units`

	// $1: tenant, $2: the first hour, $3: the length of a period in ms, $4: number of rows, $5: of
	// test keys.
	statement = `SELECT hour / $3 * $3 AS start, key_id, operation, outcome, ` + usageSums + `
		FROM usage_hours WHERE tenant_id = $1 AND hour >= $2 AND is_test = $5 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $4`

	// $1: the first hour, $2: the end, $3: number of rows. Of live keys.
	topUsage = `SELECT tenant_id, CAST(SUM(requests) AS BIGINT) AS requests, CAST(SUM(charged) AS BIGINT) AS charged,
			CAST(SUM(units) AS BIGINT) AS units, MAX(units) AS busiest_day
		FROM (SELECT tenant_id, ` + usageSums + ` FROM usage_hours WHERE hour >= $1 AND hour < $2 AND NOT is_test
			GROUP BY tenant_id, hour / 86400000) AS of_days
		GROUP BY tenant_id ORDER BY units DESC, requests DESC, tenant_id LIMIT $3`

	// $1: the first hour. Of all tenants.
	usageOfAll = `SELECT hour AS start, outcome, CAST(SUM(requests) AS BIGINT) AS requests FROM usage_hours WHERE hour >= $1
		GROUP BY hour, outcome ORDER BY hour, outcome`

	// $1: the first hour, $2: the end, $3: number of rows. A report of the quota is neither served
	// nor refused.
	refusedMost = `SELECT tenant_id, outcome, CAST(SUM(requests) AS BIGINT) AS requests FROM usage_hours
		WHERE hour >= $1 AND hour < $2 AND outcome NOT IN ('ok', 'report') GROUP BY tenant_id, outcome ORDER BY 3 DESC, 1, 2 LIMIT $3`

	// By the part of its limit per day that each tenant's live keys were charged today. $1: the
	// first hour of the day, $2: number of rows.
	nearestToDay = `SELECT u.tenant_id FROM
			(SELECT tenant_id, SUM(requests + more_units) AS charged FROM usage_hours WHERE hour >= $1 AND charged AND NOT is_test GROUP BY tenant_id) AS u
		JOIN tenants t ON t.id = u.tenant_id JOIN plans p ON p.name = t.plan WHERE t.day_limit > 0 OR p.day_limit > 0
		ORDER BY u.charged * 1.0 / COALESCE(NULLIF(t.day_limit, 0), p.day_limit) DESC, 1 LIMIT $2`

	// By the part of its limit per month that each tenant was charged in its month, since its last
	// reset. $1: the day of the calendar month, $2, $3: the first hours of this calendar month and
	// of the one before, $4: number of rows.
	nearestToMonth = `SELECT u.tenant_id FROM
			(SELECT t.id, t.usage_since, COALESCE(NULLIF(t.month_limit, 0), p.month_limit) AS most,
				CASE WHEN t.month_starts <= $1 THEN CAST($2 AS BIGINT) ELSE CAST($3 AS BIGINT) END
					+ 86400000 * (COALESCE(NULLIF(t.month_starts, 0), 1) - 1) AS since
			FROM tenants t JOIN plans p ON p.name = t.plan WHERE t.month_limit > 0 OR p.month_limit > 0) AS m
		JOIN usage_hours u ON u.tenant_id = m.id AND u.hour >= m.since AND u.hour > m.usage_since - 3600000 AND u.charged AND NOT u.is_test
		GROUP BY u.tenant_id, m.most ORDER BY SUM(u.requests + u.more_units) * 1.0 / m.most DESC, 1 LIMIT $4`

	// $1: rows with operation, $2: the first hour, $3: the first hour that counts as recent.
	operationUsage = `SELECT u.operation, u.tenant_id, COALESCE(t.name, '') AS tenant_name, u.key_id, COALESCE(k.name, '') AS key_name, u.recent, u.before
		FROM (SELECT operation, tenant_id, key_id, CAST(SUM(CASE WHEN hour >= $3 THEN requests ELSE 0 END) AS BIGINT) AS recent,
				CAST(SUM(CASE WHEN hour < $3 THEN requests ELSE 0 END) AS BIGINT) AS before
			FROM usage_hours WHERE hour >= $2 AND operation {listed}
			GROUP BY operation, tenant_id, key_id) AS u
		LEFT JOIN tenants t ON t.id = u.tenant_id LEFT JOIN tenant_keys k ON k.id = u.key_id
		ORDER BY u.operation, u.recent DESC, u.tenant_id, u.key_id`

	// $1: tenant, $2: the first hour.
	minutesOfTenant = `SELECT hour, gateway, attempts, is_test FROM usage_minutes WHERE tenant_id = $1 AND hour >= $2 ORDER BY hour, gateway`

	// Notes that a process ended and may have kept usage that is not stored. $1: gateway, $2:
	// incarnation, $3: cause.
	noteGap = `INSERT INTO usage_gaps (gateway, incarnation, cause, since, seen_at, noted_at, usage_batch)
		SELECT id, incarnation, $3, usage_through, seen_at, {now}, usage_batch FROM gateways WHERE id = $1 AND incarnation = $2
		ON CONFLICT (gateway, incarnation) DO UPDATE SET cause = excluded.cause, since = excluded.since, seen_at = excluded.seen_at,
			noted_at = excluded.noted_at, usage_batch = excluded.usage_batch`

	// Notes that a process runs but has dropped usage. The row stays when the process registers
	// again: what it dropped is not stored later. $1: gateway, $2: incarnation, $3: a name for the
	// row in place of the incarnation, $4: cause.
	noteDropped = `INSERT INTO usage_gaps (gateway, incarnation, cause, since, seen_at, noted_at, usage_batch)
		SELECT id, $3, $4, usage_through, seen_at, {now}, 0 FROM gateways WHERE id = $1 AND incarnation = $2
		ON CONFLICT (gateway, incarnation) DO UPDATE SET noted_at = excluded.noted_at`

	// $1: gateway, $2: incarnation.
	closeGap = `DELETE FROM usage_gaps WHERE gateway = $1 AND incarnation = $2`

	// $1: instant in ms. The gaps that may contain something after it.
	gapsSince = `SELECT gateway, cause, since, seen_at, noted_at FROM usage_gaps WHERE noted_at > $1 ORDER BY noted_at, gateway, incarnation`

	// $1: instant in ms. Gaps that were noted before are as old as the usage that is deleted.
	pruneGaps = `DELETE FROM usage_gaps WHERE noted_at < $1 AND noted_at < {now} - 34560000000`
)

const (
	// $1: rows of quotaRow, $2: instant in ms of the save.
	upsertQuotas = `INSERT INTO quota_records (tenant_id, record, saved_at)
		SELECT value->>'name', {record}, CAST($2 AS BIGINT) FROM {rows} WHERE true
		ON CONFLICT (tenant_id) DO UPDATE SET record = excluded.record, saved_at = excluded.saved_at`

	loadQuotas = `SELECT tenant_id AS name, record FROM quota_records`

	// $1: instant in ms. Records are not valid after their month.
	pruneQuotas = `DELETE FROM quota_records WHERE saved_at < $1`
)

const (
	// Lists only refusals that the rows of keys and tenants still lack.
	lostRefusals = `SELECT l.kind, l.tenant_id, l.key_id, l.at, l.reported_by, l.reported_at FROM lost_refusals l
		JOIN tenants t ON t.id = l.tenant_id LEFT JOIN tenant_keys k ON k.id = l.key_id
		WHERE CASE WHEN l.kind = 'revoked' THEN k.revoked_at = 0 OR k.revoked_at < 0 AND l.at > 0
			WHEN l.kind = 'rotated' THEN k.revoked_at = 0 AND (k.grace_ends_at = 0 OR k.grace_ends_at > l.at) ELSE NOT t.suspended END
		ORDER BY l.tenant_id, l.key_id, l.kind`

	insertLost = `INSERT INTO lost_refusals (tenant_id, key_id, kind, at, reported_by, reported_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (tenant_id, key_id, kind) DO NOTHING`

	// $1: tenant, $2: key, or '' for the tenant's suspension.
	deleteLost = `DELETE FROM lost_refusals WHERE tenant_id = $1 AND key_id = $2`
)

// What is deleted. Events and usage name it by its ID or name, and stay.
const (
	// $1: tenant, $2: now. The keys that work, or that would work if they were enabled.
	countLiveKeys = `SELECT COUNT(*) FROM tenant_keys WHERE tenant_id = $1 AND revoked_at <= 0 AND (expires_at = 0 OR expires_at > $2)
		AND (grace_ends_at = 0 OR grace_ends_at > $2)`

	// $1: tenant. The rows that refer to others come first.
	deleteBansOfTenant = `DELETE FROM bans WHERE key_id IN (SELECT id FROM tenant_keys WHERE tenant_id = $1)`
	deleteKeysOfTenant = `DELETE FROM tenant_keys WHERE tenant_id = $1`
	deleteLostOfTenant = `DELETE FROM lost_refusals WHERE tenant_id = $1`
	deleteTenant       = `DELETE FROM tenants WHERE id = $1`

	// $1: name.
	deletePlan = `DELETE FROM plans WHERE name = $1`
)

// Changes of one record or of many. $1: the records.
const (
	insertPlans = `INSERT INTO plans (name, minute_limit, day_limit, month_limit, test_minute_limit, created_at)
		SELECT value->>'name', CAST(value->'limits'->>'minute' AS BIGINT), CAST(value->'limits'->>'day' AS BIGINT),
			COALESCE(CAST(value->'limits'->>'month' AS BIGINT), 0), COALESCE(CAST(value->'test'->>'minute' AS BIGINT), 0),
			CAST(value->>'createdAt' AS BIGINT) FROM {rows}`

	updatePlans = `UPDATE plans SET minute_limit = CAST(value->'limits'->>'minute' AS BIGINT), day_limit = CAST(value->'limits'->>'day' AS BIGINT),
			month_limit = COALESCE(CAST(value->'limits'->>'month' AS BIGINT), 0),
			test_minute_limit = COALESCE(CAST(value->'test'->>'minute' AS BIGINT), 0)
		FROM {rows} WHERE name = value->>'name'`

	insertTenants = `INSERT INTO tenants (id, name, plan, minute_limit, day_limit, month_limit, month_starts, suspended, created_at)
		SELECT value->>'id', value->>'name', value->>'plan', CAST(value->'override'->>'minute' AS BIGINT),
			CAST(value->'override'->>'day' AS BIGINT), COALESCE(CAST(value->'override'->>'month' AS BIGINT), 0),
			COALESCE(CAST(value->>'monthStarts' AS BIGINT), 0), CAST(value->>'suspended' AS BOOLEAN), CAST(value->>'createdAt' AS BIGINT) FROM {rows}`

	updateTenants = `UPDATE tenants SET name = value->>'name', plan = value->>'plan', minute_limit = CAST(value->'override'->>'minute' AS BIGINT),
			day_limit = CAST(value->'override'->>'day' AS BIGINT), month_limit = COALESCE(CAST(value->'override'->>'month' AS BIGINT), 0),
			month_starts = COALESCE(CAST(value->>'monthStarts' AS BIGINT), 0), suspended = CAST(value->>'suspended' AS BOOLEAN)
		FROM {rows} WHERE tenants.id = value->>'id'`

	// Two resets never get the same instant, even if the clock steps back.
	resetUsage = `UPDATE tenants SET usage_since = CASE WHEN usage_since >= CAST(value->>'at' AS BIGINT) THEN usage_since + 1
			ELSE CAST(value->>'at' AS BIGINT) END
		FROM {rows} WHERE tenants.id = value->>'id'`

	// The lost suspensions of these tenants, or the lost ends of these keys.
	deleteRefusals = `DELETE FROM lost_refusals WHERE kind <> 'rotated'
		AND CASE WHEN key_id = '' THEN tenant_id ELSE key_id END IN (SELECT value->>'id' FROM {rows})`

	insertKeys = `INSERT INTO tenant_keys (id, tenant_id, hash, name, hint, environment, scopes, allow_list, created_at, expires_at,
			revoked_at, grace_ends_at, replaced_by, last_used_at, minute_limit, day_limit)
		SELECT value->>'id', value->>'tenantId', {hash}, value->>'name', value->>'hint', value->>'environment', value->>'scopes', value->>'allow',
			CAST(value->>'createdAt' AS BIGINT), CAST(value->>'expiresAt' AS BIGINT), 0, 0, '', 0,
			CAST(value->'limits'->>'minute' AS BIGINT), CAST(value->'limits'->>'day' AS BIGINT) FROM {rows}`

	updateKeys = `UPDATE tenant_keys SET name = value->>'name', scopes = value->>'scopes', allow_list = value->>'allow',
			expires_at = CAST(value->>'expiresAt' AS BIGINT), revoked_at = CAST(value->>'revokedAt' AS BIGINT),
			grace_ends_at = CAST(value->>'graceEndsAt' AS BIGINT), replaced_by = COALESCE(value->>'replacedBy', ''),
			minute_limit = CAST(value->'limits'->>'minute' AS BIGINT), day_limit = CAST(value->'limits'->>'day' AS BIGINT)
		FROM {rows} WHERE tenant_keys.id = value->>'id'`

	// Draws the next IDs, which are larger than $4 too. The writers' lock must be held: if a larger
	// ID were committed first, readers would skip these. A sequence is not used: it leaves gaps
	// after a rollback, and after a fail-over it may repeat numbers too. $2: instant in ms, $3:
	// actor.
	insertEvents = `INSERT INTO events (id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json)
		SELECT (SELECT COALESCE(MAX(id), 0) FROM (SELECT MAX(id) AS id FROM events UNION ALL SELECT CAST($4 AS BIGINT)) AS last) + CAST(value->>'n' AS BIGINT),
			value->>'uuid', CAST($2 AS BIGINT), $3, value->>'kind',
			COALESCE(value->>'tenantId', ''), COALESCE(value->>'keyId', ''), value->>'plan', value->>'before', value->>'after' FROM {rows}
		RETURNING id`
)

// What a gateway calls on PostgreSQL. See the functions' migration. $1: gateway, $2: the event's
// UUID, then the row.
const (
	banByGatewayPostgres = `SELECT gateway_ban($1, $2, $3, $4, $5, $6)`

	reportLostPostgres = `SELECT gateway_report_lost($1, $2, $3, $4, $5, $6, $7)`

	lockHoldersPostgres = `SELECT * FROM writers_lock() ORDER BY age DESC, pid`
)
