package lists

import (
	"petgate/shared/keystore"
)

// Statements for lists, as pages and as streams. Each page begins after the last row of the page
// before it. So all pages cost the same.

const (
	// It looks for names in their index, and reads only the rows of those that it finds. $1: the
	// name of the last tenant before, $2: a pattern for names in lower case, $3: number of rows.
	// Names sort by their bytes, so PostgreSQL too changes the case of ASCII letters only. The
	// pattern is a plain parameter: a function of it would be called for each name.
	tenantsFound = keystore.SelectTenants + `
		WHERE name IN (
			SELECT name FROM tenants
			WHERE name > $1 AND LOWER(name) LIKE $2{escape}
			ORDER BY name LIMIT $3)
		ORDER BY name`

	// $1: a pattern for names in lower case, $2: plan, $3: active or suspended, each '' for all.
	isFiltered = `
		WHERE ($1 = '' OR LOWER(name) LIKE $1{escape})
			AND ($2 = '' OR plan = $2)
			AND ($3 = '' OR suspended = ($3 = 'suspended'))`

	// $1 to $3: as above, $4: the name of the last tenant before, $5: number of rows.
	tenantsSelected = keystore.SelectTenants + isFiltered + `
			AND name > $4
		ORDER BY name LIMIT $5`

	// $1 to $3: as above, $4, $5: creation and ID of the last tenant before, $6: number of rows.
	tenantsNewest = keystore.SelectTenants + isFiltered + `
			AND (created_at, id) < ($4, $5)
		ORDER BY created_at DESC, id DESC LIMIT $6`

	countTenants = `SELECT COUNT(*) FROM tenants`

	// $1 to $3: as above, $4: the only ID, or ''.
	countSelected = countTenants + isFiltered + ` AND ($4 = '' OR id = $4)`

	// $1: the name of the last tenant before, $2: ID.
	tenantFound = keystore.SelectTenants + ` WHERE id = $2 AND name > $1`

	// $1: rows with tenantId.
	tenantsOf = keystore.SelectTenants + ` WHERE id IN (SELECT value->>'tenantId' FROM {rows})`

	tenantsByPlan = `SELECT plan, COUNT(*) AS tenants FROM tenants GROUP BY plan`

	// The newest first. $1, $2: creation and ID of the last key before, $3: number of rows.
	keysFound = keystore.SelectKeys + `
		WHERE (created_at, id) < ($1, $2)
		ORDER BY created_at DESC, id DESC LIMIT $3`

	// $1 to $3: as above, $4: tenant.
	keysFoundOfTenant = keystore.SelectKeys + `
		WHERE tenant_id = $4 AND (created_at, id) < ($1, $2)
		ORDER BY created_at DESC, id DESC LIMIT $3`

	// The keys that may call and end by themselves. $1: now, $2: the end of the time that is looked
	// at, $3: number of rows.
	keysExpiring = keystore.SelectKeys + `
		WHERE expires_at > $1 AND expires_at <= $2 AND revoked_at = 0 AND disabled_at = 0 AND replaced_by = ''
		ORDER BY expires_at, id LIMIT $3`

	// The oldest first.
	keysByAge = keystore.SelectKeys + ` ORDER BY created_at, id`

	// $1: tenant.
	keysOfTenant = keystore.SelectKeys + ` WHERE tenant_id = $1 ORDER BY created_at, id`

	selectBans = `SELECT ` + keystore.BanColumns + `, k.name AS key_name, t.name AS tenant_name
		FROM ` + keystore.BanTables + ` JOIN tenants t ON t.id = k.tenant_id
		WHERE b.lifted_at = 0`

	// $1: now.
	countBans = `SELECT COUNT(*) FROM bans WHERE until > $1 AND lifted_at = 0`

	// $1: now, $2, $3: end and key of the last ban before, $4: number of rows.
	bansFound = selectBans + ` AND b.until > $1 AND (b.until, b.key_id) > ($2, $3)
		ORDER BY b.until, b.key_id LIMIT $4`

	// By the tenant's keys, not by the index on until. $1 to $4: as above, $5: tenant.
	bansOfTenant = selectBans + ` AND k.tenant_id = $5 AND +b.until > $1 AND (+b.until, b.key_id) > ($2, $3)
		ORDER BY +b.until, b.key_id LIMIT $4`

	// $1: rows with keyId, $2: now.
	bansOfKeys = `SELECT ` + keystore.BanColumns + ` FROM ` + keystore.BanTables + `
		WHERE b.key_id IN (SELECT value->>'keyId' FROM {rows}) AND b.lifted_at = 0 AND +b.until > $2`

	selectEvents = `SELECT id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json FROM events`

	// The smallest ID of the events since an instant. Clocks of writers differ, so it is sought
	// among the 1,000 earliest of them. $2: instant in ms, 0: all events.
	firstSince = `CASE WHEN CAST($2 AS BIGINT) = 0 THEN 0 ELSE COALESCE(
		(SELECT MIN(e.id) FROM (SELECT id FROM events WHERE at >= $2 ORDER BY at, id LIMIT 1000) AS e),
		9223372036854775807) END`

	// $3: actor, $4: kind or its first part, each '' for all.
	isSelected = `
			AND +at >= $2
			AND ($3 = '' OR actor IN ($3, 'keyadmin:' || $3, 'gateway:' || $3, 'operator:' || $3, 'console:' || $3))
			AND ($4 = '' OR kind = $4 OR kind LIKE $4 || '.%')`

	// The oldest first. $1: the event before, $2 to $4: as above, $5: tenant, $6: key, each '' for
	// all.
	eventsAfter = selectEvents + `
		WHERE id > $1 AND id >= ` + firstSince + isSelected + `
			AND ($5 = '' OR tenant_id = $5)
			AND ($6 = '' OR key_id = $6)
		ORDER BY id`

	// $1: the event after the page, $2 to $4: as above.
	selectPage = selectEvents + ` WHERE id < $1 AND id >= ` + firstSince + isSelected

	// $5: number of rows.
	latestFirst = ` ORDER BY id DESC LIMIT $5`

	eventsFound = selectPage + latestFirst

	// $6: tenant.
	eventsOfTenant = selectPage + ` AND tenant_id = $6` + latestFirst

	// $6: key, $7: tenant, or '' for all.
	eventsOfKey = selectPage + ` AND key_id = $6 AND ($7 = '' OR tenant_id = $7)` + latestFirst
)
