package schema

// What gateways write. On PostgreSQL, these statements are in functions: see functions.go.

const (
	// Makes the generation larger than before and larger than $1. It locks the row, so
	// registrations and removals do not overlap.
	GrowGeneration = `UPDATE gateway_registry
		SET generation = CASE WHEN generation > $1 THEN generation ELSE $1 END + 1 RETURNING generation`

	// Committed before a gateway loads. From then on changes wait for the process. A process that
	// was removed before continues with the number of its last batch. $1: ID, $2: incarnation, $3:
	// generation, $4: address, $5: maximum age, $6: all that it did before this instant is stored.
	Register = `INSERT INTO gateways
			(id, incarnation, generation, admin_address, applied_event, registered_at, seen_at, max_age,
				usage_batch, usage_through)
		VALUES ($1, $2, $3, $4, 0, {now}, {now}, $5,
			COALESCE((SELECT usage_batch FROM usage_gaps WHERE gateway = $1 AND incarnation = $2), 0), $6)
		ON CONFLICT (id, incarnation) DO UPDATE SET generation = excluded.generation,
			admin_address = excluded.admin_address, applied_event = 0, registered_at = excluded.registered_at,
			seen_at = excluded.seen_at, max_age = excluded.max_age, usage_through = excluded.usage_through`

	// $1: ID, $2: incarnation, $3: generation, $4: last event applied, $5: that event's UUID (''
	// before the first), $6: all that it did before this instant is stored. Changes nothing if a
	// fail-over has lost the event: its ID will be used again.
	//
	// Not with synchronous_commit = off: a gateway that has the answer serves for its maximum age,
	// so a crash of the database must not take the heartbeat back. A watcher would fence the
	// gateway too early.
	Heartbeat = `UPDATE gateways SET applied_event = $4, seen_at = {now}, usage_through = $6
		WHERE id = $1 AND incarnation = $2 AND generation = $3
			AND COALESCE((SELECT uuid FROM events WHERE id = $4), '') = $5
			AND NOT EXISTS (SELECT 1 FROM gateways s WHERE s.id = $1 AND s.generation > $3)
		RETURNING (SELECT generation FROM gateway_registry), {now}`

	// $1: ID, $2: incarnation, $3: a Document.
	DescribeGateway = `UPDATE gateways SET document = $3 WHERE id = $1 AND incarnation = $2`

	// $1: ID, $2: incarnation.
	DeleteProcess = `DELETE FROM gateways WHERE id = $1 AND incarnation = $2`

	// Deletes the process only if it has sent no heartbeat after $3. $1: ID, $2: incarnation, $3:
	// its last heartbeat, $4: its maximum age.
	DeleteSilent = DeleteProcess + ` AND seen_at = $3 AND max_age = $4`

	// $1: incarnation, $2: text.
	LeaveUnreported = `INSERT INTO unreported_requests (incarnation, requests) VALUES ($1, $2)
		ON CONFLICT (incarnation) DO NOTHING`

	TakeUnreported = `DELETE FROM unreported_requests RETURNING requests`

	// Claims a batch. Changes no row if the batch was added before. $1: gateway, $2: incarnation,
	// $3: batch.
	ClaimUsage = `UPDATE gateways SET usage_batch = $3 WHERE id = $1 AND incarnation = $2 AND usage_batch < $3`

	// $1: rows of UsageRow that differ in more than their numbers. What comes after its hour was
	// sealed is a correction.
	AddUsage = `INSERT INTO usage_hours
			(tenant_id, hour, operation, correction, charged, key_id, outcome, requests, more_units, is_test)
		SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), value->>'operation',
			CASE WHEN CAST(value->>'hour' AS BIGINT) < (SELECT through FROM usage_ledger)
				THEN (SELECT seal FROM usage_ledger) ELSE 0 END,
			CAST(value->>'charged' AS BOOLEAN), COALESCE(value->>'keyId', ''), value->>'outcome',
			CAST(value->>'requests' AS BIGINT), COALESCE(CAST(value->>'moreUnits' AS BIGINT), 0),
			COALESCE(CAST(value->>'test' AS BOOLEAN), false) FROM {rows} WHERE true
		ON CONFLICT (tenant_id, hour, operation, correction, charged, key_id, outcome) DO UPDATE SET
			requests = usage_hours.requests + excluded.requests,
			more_units = usage_hours.more_units + excluded.more_units`

	// $1: rows of minuteRows, $2: gateway.
	AddMinutes = `INSERT INTO usage_minutes (tenant_id, hour, gateway, attempts, is_test)
		SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), CAST($2 AS TEXT), value->>'attempts',
			COALESCE(CAST(value->>'test' AS BOOLEAN), false) FROM {rows} WHERE true
		ON CONFLICT (tenant_id, hour, gateway) DO UPDATE SET attempts = usage_minutes.attempts || excluded.attempts`

	// $1: rows of UsageRow. A request used its key if it was charged, or if its answer was free, as
	// a report of the quota. Otherwise it was refused. Updates each of the two times at most once a
	// minute, so that the row of a busy key is not rewritten every few seconds.
	TouchKeys = `UPDATE tenant_keys SET
			last_used_at = CASE WHEN last_used_at < u.used_at THEN u.used_at ELSE last_used_at END,
			last_refused_at = CASE WHEN last_refused_at < u.refused_at THEN u.refused_at ELSE last_refused_at END
		FROM (SELECT key_id, MAX(CASE WHEN used THEN at ELSE 0 END) AS used_at,
				MAX(CASE WHEN used THEN 0 ELSE at END) AS refused_at
			FROM (SELECT value->>'keyId' AS key_id, CAST(value->>'lastAt' AS BIGINT) AS at,
				CAST(value->>'charged' AS BOOLEAN) OR value->>'outcome' IN ('ok', 'report') AS used
				FROM {rows}) AS requests GROUP BY key_id) AS u
		WHERE tenant_keys.id = u.key_id
			AND (last_used_at <= u.used_at - 60000 OR last_refused_at <= u.refused_at - 60000)`

	// $1: rows with tenantId, $2: the first hour that is kept. 400 days are always kept, as in
	// pruneGaps: a gateway in wrong hands cannot delete them.
	PruneUsage = `DELETE FROM usage_hours
		WHERE tenant_id IN (SELECT value->>'tenantId' FROM {rows}) AND hour < $2 AND hour < {now} - 34560000000`

	// $1: rows with tenantId, $2: the first hour that is kept. 34 days are always kept.
	PruneMinutes = `DELETE FROM usage_minutes
		WHERE tenant_id IN (SELECT value->>'tenantId' FROM {rows}) AND hour < $2 AND hour < {now} - 2937600000`

	// Notes that a process ended and may have kept usage that is not stored. $1: gateway, $2:
	// incarnation, $3: cause.
	NoteGap = `INSERT INTO usage_gaps (gateway, incarnation, cause, since, seen_at, noted_at, usage_batch)
		SELECT id, incarnation, $3, usage_through, seen_at, {now}, usage_batch FROM gateways
			WHERE id = $1 AND incarnation = $2
		ON CONFLICT (gateway, incarnation) DO UPDATE SET cause = excluded.cause, since = excluded.since,
			seen_at = excluded.seen_at, noted_at = excluded.noted_at, usage_batch = excluded.usage_batch`

	// Notes that a process runs but has dropped usage. The row stays when the process registers
	// again: what it dropped is not stored later. $1: gateway, $2: incarnation, $3: a name for the
	// row in place of the incarnation, $4: cause.
	NoteDropped = `INSERT INTO usage_gaps (gateway, incarnation, cause, since, seen_at, noted_at, usage_batch)
		SELECT id, $3, $4, usage_through, seen_at, {now}, 0 FROM gateways WHERE id = $1 AND incarnation = $2
		ON CONFLICT (gateway, incarnation) DO UPDATE SET noted_at = excluded.noted_at`

	// $1: gateway, $2: incarnation.
	CloseGap = `DELETE FROM usage_gaps WHERE gateway = $1 AND incarnation = $2`

	// $1: instant in ms. Gaps that were noted before are as old as the usage that is deleted.
	PruneGaps = `DELETE FROM usage_gaps WHERE noted_at < $1 AND noted_at < {now} - 34560000000`

	// $1: rows of quotaRow, $2: instant in ms of the save.
	UpsertQuotas = `INSERT INTO quota_records (tenant_id, record, saved_at)
		SELECT value->>'name', {record}, CAST($2 AS BIGINT) FROM {rows} WHERE true
		ON CONFLICT (tenant_id) DO UPDATE SET record = excluded.record, saved_at = excluded.saved_at`

	// $1: instant in ms. Records are not valid after their month.
	PruneQuotas = `DELETE FROM quota_records WHERE saved_at < $1`

	// Sets a key's latest ban. Changes no row for a ban that was stored before, nor if the present
	// one does not end sooner. $1: key, $2: until, $3: automatic, $4: notice, $5: reason, $6:
	// imposed by, $7: imposed at.
	UpsertBan = `INSERT INTO bans (key_id, until, automatic, notice, reason, imposed_by, imposed_at, lifted_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 0)
		ON CONFLICT (key_id) DO UPDATE SET until = excluded.until, automatic = excluded.automatic,
			notice = excluded.notice, reason = excluded.reason, imposed_by = excluded.imposed_by,
			imposed_at = excluded.imposed_at, lifted_at = 0
		WHERE (bans.imposed_by <> excluded.imposed_by OR bans.imposed_at <> excluded.imposed_at)
			AND (bans.lifted_at > 0 OR bans.until < excluded.until)`

	// Changes no row for a refusal that is listed. $1: tenant, $2: key, $3: kind, $4: see
	// LostRefusal.At, $5: reported by, $6: reported at.
	InsertLost = `INSERT INTO lost_refusals (tenant_id, key_id, kind, at, reported_by, reported_at)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (tenant_id, key_id, kind) DO NOTHING`
)
