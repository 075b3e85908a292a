package keystore

// The statements, with the placeholders of schema.Dialect.

// The writers' lock. The numbers of locks must not change: all writers of one database must use the
// same.
const alonePostgres lock = `SELECT pg_advisory_xact_lock(123581046915073)`

// A change of one record shares the lock until its turn to draw an event's ID. From then until its
// commit, the database does not wait for the program. The notification is sent when the transaction
// commits.
const (
	sharedPostgres lock = `SELECT pg_advisory_xact_lock_shared(123581046915073)`

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
	SelectTenants = `SELECT id, name, plan, minute_limit AS "override.minute", day_limit AS "override.day",
		month_limit AS "override.month", month_starts, suspended, created_at FROM tenants`

	// $1: ID.
	tenantByID = SelectTenants + ` WHERE id = $1`

	// $1: name.
	tenantByName = SelectTenants + ` WHERE name = $1`
)

const (
	SelectKeys = `SELECT k.id, k.tenant_id, k.name, k.hint, k.environment, k.scopes, k.allow_list, k.created_at, k.expires_at, k.revoked_at,
		k.disabled_at, k.grace_ends_at, k.replaced_by, k.last_used_at, k.last_refused_at, k.minute_limit AS "limits.minute",
		k.day_limit AS "limits.day" FROM tenant_keys k`

	// $1: ID.
	keyByID = SelectKeys + ` WHERE id = $1`

	// $1: hash.
	keyByHash = SelectKeys + ` WHERE hash = $1`
)

const (
	BanColumns = `b.key_id, k.tenant_id, b.until, b.automatic, b.notice, b.reason, b.imposed_by, b.imposed_at`

	BanTables = `bans b JOIN tenant_keys k ON k.id = b.key_id`

	// $1: key. Its latest ban, current or not.
	banByKey = `SELECT ` + BanColumns + `, b.lifted_at FROM ` + BanTables + ` WHERE b.key_id = $1`

	// $1: key, $2: now.
	liftBan = `UPDATE bans SET lifted_at = $2 WHERE key_id = $1`
)

const (
	// $1: instant in ms, $2: UUID.
	eventByUUID = `SELECT COALESCE(MAX(id), 0) FROM events WHERE at = $1 AND uuid = $2`

	// $1: ID.
	eventByID = `SELECT id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json FROM events WHERE id = $1`

	// $1: ID, $2: UUID.
	hasEvent = `SELECT EXISTS (SELECT 1 FROM events WHERE id = $1 AND uuid = $2)`

	lastEvent = `SELECT id, uuid FROM events ORDER BY id DESC LIMIT 1`
)

// What a gateway keeps in memory.
const (
	loadPlans = `SELECT name, minute_limit, day_limit, month_limit, test_minute_limit FROM plans`

	loadTenants = `SELECT id, plan, minute_limit, day_limit, month_limit, month_starts, suspended, usage_since FROM tenants`

	loadKeys = `SELECT hash, id, tenant_id, environment, scopes, allow_list, name, replaced_by, expires_at, revoked_at, disabled_at,
			grace_ends_at, minute_limit, day_limit FROM tenant_keys`

	// $1: instant in ms. The bans that end later.
	loadBans = `SELECT key_id, until, automatic, notice FROM bans WHERE lifted_at = 0 AND until > $1`

	countRows = `SELECT (SELECT COUNT(*) FROM tenants), (SELECT COUNT(*) FROM tenant_keys)`

	// The events from $1 on, each with the current rows of its tenant, plan, key and ban, or NULL.
	// Event $1 comes first, which shows that it still exists. The end of a lifted ban is 0.
	tailEvents = `SELECT e.id, e.uuid, e.kind, e.tenant_id,
			p.name, p.minute_limit, p.day_limit, p.month_limit, p.test_minute_limit,
			t.id, t.plan, t.minute_limit, t.day_limit, t.month_limit, t.month_starts, t.suspended, t.usage_since,
			k.hash, k.id, k.tenant_id, k.environment, k.scopes, k.allow_list, k.name, k.replaced_by,
			k.expires_at, k.revoked_at, k.disabled_at, k.grace_ends_at, k.minute_limit, k.day_limit,
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
	selectGateways = `SELECT g.id, g.incarnation, g.generation, g.admin_address, g.applied_event, g.registered_at, g.seen_at,
		{now} - g.seen_at AS age, g.max_age, g.usage_through, g.document, g.generation < MAX(g.generation) OVER (PARTITION BY g.id) AS replaced FROM gateways g`

	gatewaysByID = selectGateways + ` ORDER BY g.id, g.generation`

	// $1: ID.
	gatewayByID = selectGateways + ` WHERE g.id = $1 ORDER BY g.generation`

	unreportedRequests = `SELECT requests FROM unreported_requests ORDER BY incarnation`
)

const (
	// Lists only refusals that the rows of keys and tenants still lack.
	lostRefusals = `SELECT l.kind, l.tenant_id, l.key_id, l.at, l.reported_by, l.reported_at FROM lost_refusals l
		JOIN tenants t ON t.id = l.tenant_id LEFT JOIN tenant_keys k ON k.id = l.key_id
		WHERE CASE l.kind
			WHEN 'suspended' THEN NOT t.suspended
			WHEN 'revoked' THEN k.revoked_at = 0
			WHEN 'disabled' THEN k.revoked_at = 0 AND k.disabled_at = 0
			ELSE k.revoked_at = 0 AND k.disabled_at = 0 AND (k.grace_ends_at = 0 OR k.grace_ends_at > l.at) END
		ORDER BY l.tenant_id, l.key_id, l.kind`

	// $1: tenant, $2: key, or '' for the tenant's suspension.
	deleteLost = `DELETE FROM lost_refusals WHERE tenant_id = $1 AND key_id = $2`
)

// What is deleted. Events and usage name it by its ID or name, and stay.
const (
	// $1: tenant, $2: now. The keys that work, or that would work if they were enabled.
	countLiveKeys = `SELECT COUNT(*) FROM tenant_keys WHERE tenant_id = $1 AND revoked_at = 0 AND (expires_at = 0 OR expires_at > $2)
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
			revoked_at, disabled_at, grace_ends_at, replaced_by, last_used_at, minute_limit, day_limit)
		SELECT value->>'id', value->>'tenantId', {hash}, value->>'name', value->>'hint', value->>'environment', value->>'scopes', value->>'allow',
			CAST(value->>'createdAt' AS BIGINT), CAST(value->>'expiresAt' AS BIGINT), 0, 0, 0, '', 0,
			CAST(value->'limits'->>'minute' AS BIGINT), CAST(value->'limits'->>'day' AS BIGINT) FROM {rows}`

	updateKeys = `UPDATE tenant_keys SET name = value->>'name', scopes = value->>'scopes', allow_list = value->>'allow',
			expires_at = CAST(value->>'expiresAt' AS BIGINT), revoked_at = CAST(value->>'revokedAt' AS BIGINT),
			disabled_at = CAST(value->>'disabledAt' AS BIGINT),
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

// What a gateway calls on PostgreSQL: see schema/functions.go. $1: gateway, $2: the event's
// UUID, then the row.
const (
	banByGatewayPostgres = `SELECT gateway_ban($1, $2, $3, $4, $5, $6)`

	reportLostPostgres = `SELECT gateway_report_lost($1, $2, $3, $4, $5, $6, $7)`

	lockHoldersPostgres = `SELECT * FROM writers_lock() ORDER BY age DESC, pid`
)

// Requests that are carried out once.
const (
	// Of the last event. $1: ID, $2: body, $3: salt, $4: now.
	insertRequest = `INSERT INTO operator_requests (id, body, salt, event, at) VALUES ($1, $2, $3, (SELECT MAX(id) FROM events), $4)`

	// $1: ID, $2: instant in ms. Older ones do not count.
	hasRequest = `SELECT EXISTS (SELECT 1 FROM operator_requests WHERE id = $1 AND at >= $2)`

	// $1: ID.
	requestByID = `SELECT id, body, salt, event FROM operator_requests WHERE id = $1`

	// $1: instant in ms.
	pruneRequests = `DELETE FROM operator_requests WHERE at < $1`
)

// For passing everything.
const (
	// $1: the name of the last tenant before, $2: number of rows.
	tenantsFrom = SelectTenants + ` WHERE name > $1 ORDER BY name LIMIT $2`

	// $1, $2: the names of the first and the last tenant.
	keysOfTenants = SelectKeys + ` JOIN tenants t ON t.id = k.tenant_id WHERE t.name >= $1 AND t.name <= $2 ORDER BY t.name, k.created_at, k.id`
)
