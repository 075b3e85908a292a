-- +goose Up

-- What the role of gateways can write, it writes by the functions here, which have the rights of the tables' owner. So a gateway in wrong
-- hands cannot change keys or the past, nor write in another name. Rows from before are not checked.

ALTER TABLE events
    ADD CONSTRAINT events_id CHECK (id BETWEEN 1 AND 9007199254740991) NOT VALID,
    ADD CONSTRAINT events_form CHECK (actor ~ '^[^[:cntrl:]]+$' AND kind ~ '^[a-z.-]+$' AND tenant_id ~ '^(ten_[0-9abcdefghjkmnpqrstvwxyz]{16})?$'
        AND key_id ~ '^(key_[0-9abcdefghjkmnpqrstvwxyz]{16})?$') NOT VALID;
ALTER TABLE tenant_keys ADD CONSTRAINT tenant_keys_environment CHECK (environment IN ('live', 'test')) NOT VALID;
ALTER TABLE lost_refusals ADD CONSTRAINT lost_refusals_form CHECK (kind IN ('revoked', 'disabled', 'rotated', 'suspended')
    AND tenant_id ~ '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}$' AND key_id ~ '^(key_[0-9abcdefghjkmnpqrstvwxyz]{16})?$') NOT VALID;
ALTER TABLE usage_hours ADD CONSTRAINT usage_hours_form CHECK (requests >= 0
    AND tenant_id ~ '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}$' AND key_id ~ '^(key_[0-9abcdefghjkmnpqrstvwxyz]{16})?$') NOT VALID;
ALTER TABLE usage_minutes ADD CONSTRAINT usage_minutes_form CHECK (attempts ~ '^([@-{][0-9]+)*$') NOT VALID;
ALTER TABLE quota_records ADD CONSTRAINT quota_records_form CHECK (tenant_id ~ '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}(:[0-9]+)?$') NOT VALID;

-- Each of these functions has the text of a statement of gateways.

-- +goose StatementBegin
CREATE FUNCTION gateway_grow_generation(BIGINT) RETURNS SETOF BIGINT LANGUAGE sql AS $$
    UPDATE gateway_registry SET generation = CASE WHEN generation > $1 THEN generation ELSE $1 END + 1
    RETURNING generation
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_register(TEXT, TEXT, BIGINT, TEXT, BIGINT, BIGINT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO gateways
    (id, incarnation, generation, admin_address, applied_event, registered_at, seen_at, max_age, usage_batch, usage_through)
    VALUES ($1, $2, $3, $4, 0, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), $5,
    COALESCE((SELECT usage_batch FROM usage_gaps WHERE gateway = $1 AND incarnation = $2), 0), $6)
    ON CONFLICT (id, incarnation) DO UPDATE SET generation = excluded.generation, admin_address = excluded.admin_address,
    applied_event = 0, registered_at = excluded.registered_at, seen_at = excluded.seen_at, max_age = excluded.max_age,
    usage_through = excluded.usage_through
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_heartbeat(TEXT, TEXT, BIGINT, BIGINT, TEXT, BIGINT) RETURNS TABLE (generation BIGINT, now BIGINT) LANGUAGE sql AS $$
    UPDATE gateways SET applied_event = $4, seen_at = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), usage_through = $6
    WHERE id = $1 AND incarnation = $2 AND generation = $3 AND COALESCE((SELECT uuid FROM events WHERE id = $4), '') = $5
    AND NOT EXISTS (SELECT 1 FROM gateways s WHERE s.id = $1 AND s.generation > $3)
    RETURNING (SELECT generation FROM gateway_registry), CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_delete_process(TEXT, TEXT) RETURNS SETOF INTEGER LANGUAGE sql AS $$
    DELETE FROM gateways WHERE id = $1 AND incarnation = $2 RETURNING 1
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_delete_silent(TEXT, TEXT, BIGINT, BIGINT) RETURNS SETOF INTEGER LANGUAGE sql AS $$
    DELETE FROM gateways WHERE id = $1 AND incarnation = $2 AND seen_at = $3 AND max_age = $4 RETURNING 1
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_leave_unreported(TEXT, TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO unreported_requests (incarnation, requests) VALUES ($1, $2) ON CONFLICT (incarnation) DO NOTHING
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_take_unreported() RETURNS SETOF TEXT LANGUAGE sql AS $$
    DELETE FROM unreported_requests RETURNING requests
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_claim_usage(TEXT, TEXT, BIGINT) RETURNS SETOF INTEGER LANGUAGE sql AS $$
    UPDATE gateways SET usage_batch = $3 WHERE id = $1 AND incarnation = $2 AND usage_batch < $3 RETURNING 1
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_add_usage(TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests)
    SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), value->>'operation',
    CASE WHEN CAST(value->>'hour' AS BIGINT) < (SELECT through FROM usage_ledger) THEN (SELECT seal FROM usage_ledger) ELSE 0 END,
    CAST(value->>'charged' AS BOOLEAN), COALESCE(value->>'keyId', ''), value->>'outcome',
    CAST(value->>'requests' AS BIGINT) FROM json_array_elements(CAST($1 AS json)) AS r(value) WHERE true
    ON CONFLICT (tenant_id, hour, operation, correction, charged, key_id, outcome)
    DO UPDATE SET requests = usage_hours.requests + excluded.requests
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_add_minutes(TEXT, TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO usage_minutes (tenant_id, hour, gateway, attempts)
    SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), CAST($2 AS TEXT), value->>'attempts' FROM json_array_elements(CAST($1 AS json)) AS r(value) WHERE true
    ON CONFLICT (tenant_id, hour, gateway) DO UPDATE SET attempts = usage_minutes.attempts || excluded.attempts
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_touch_keys(TEXT) RETURNS VOID LANGUAGE sql AS $$
    UPDATE tenant_keys SET last_used_at = u.last_at
    FROM (SELECT value->>'keyId' AS key_id, MAX(CAST(value->>'lastAt' AS BIGINT)) AS last_at FROM json_array_elements(CAST($1 AS json)) AS r(value) GROUP BY 1) AS u
    WHERE tenant_keys.id = u.key_id AND tenant_keys.last_used_at <= u.last_at - 60000
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_prune_usage(TEXT, BIGINT) RETURNS VOID LANGUAGE sql AS $$
    DELETE FROM usage_hours WHERE tenant_id IN (SELECT value->>'tenantId' FROM json_array_elements(CAST($1 AS json)) AS r(value)) AND hour < $2
        AND hour < CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - 34560000000
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_prune_minutes(TEXT, BIGINT) RETURNS VOID LANGUAGE sql AS $$
    DELETE FROM usage_minutes WHERE tenant_id IN (SELECT value->>'tenantId' FROM json_array_elements(CAST($1 AS json)) AS r(value)) AND hour < $2
        AND hour < CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - 2937600000
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_note_gap(TEXT, TEXT, TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO usage_gaps (gateway, incarnation, cause, since, seen_at, noted_at, usage_batch)
    SELECT id, incarnation, $3, usage_through, seen_at, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), usage_batch FROM gateways WHERE id = $1 AND incarnation = $2
    ON CONFLICT (gateway, incarnation) DO UPDATE SET cause = excluded.cause, since = excluded.since, seen_at = excluded.seen_at,
    noted_at = excluded.noted_at, usage_batch = excluded.usage_batch
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_note_dropped(TEXT, TEXT, TEXT, TEXT) RETURNS SETOF INTEGER LANGUAGE sql AS $$
    INSERT INTO usage_gaps (gateway, incarnation, cause, since, seen_at, noted_at, usage_batch)
    SELECT id, $3, $4, usage_through, seen_at, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT), 0 FROM gateways WHERE id = $1 AND incarnation = $2
    ON CONFLICT (gateway, incarnation) DO UPDATE SET noted_at = excluded.noted_at RETURNING 1
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_close_gap(TEXT, TEXT) RETURNS VOID LANGUAGE sql AS $$
    DELETE FROM usage_gaps WHERE gateway = $1 AND incarnation = $2
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_prune_gaps(BIGINT) RETURNS VOID LANGUAGE sql AS $$
    DELETE FROM usage_gaps WHERE noted_at < $1 AND noted_at < CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - 34560000000
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_upsert_quotas(TEXT, BIGINT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO quota_records (tenant_id, record, saved_at)
    SELECT value->>'name', decode(value->>'record', 'hex'), CAST($2 AS BIGINT) FROM json_array_elements(CAST($1 AS json)) AS r(value) WHERE true
    ON CONFLICT (tenant_id) DO UPDATE SET record = excluded.record, saved_at = excluded.saved_at
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gateway_prune_quotas(BIGINT) RETURNS VOID LANGUAGE sql AS $$
    DELETE FROM quota_records WHERE saved_at < $1
$$;
-- +goose StatementEnd

-- The name of a gateway as an actor: with the role in front, unless it is the role that owns the tables.
-- +goose StatementBegin
CREATE FUNCTION actor_of(gateway TEXT) RETURNS TEXT LANGUAGE sql AS $$
    SELECT CASE WHEN session_user = current_user THEN gateway ELSE session_user || ':' || gateway END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION ban_json(b bans) RETURNS TEXT LANGUAGE sql AS $$
    SELECT CAST(jsonb_strip_nulls(jsonb_build_object('keyId', b.key_id,
        'tenantId', (SELECT tenant_id FROM tenant_keys WHERE id = b.key_id), 'until', b.until, 'automatic', b.automatic,
        'notice', NULLIF(b.notice, ''), 'reason', b.reason, 'by', b.imposed_by, 'imposedAt', b.imposed_at)) AS TEXT)
$$;
-- +goose StatementEnd

-- An automatic ban with its event, whose ID it returns. A ban that was not lifted is only replaced by one that ends later. NULL: nothing
-- has changed.
-- +goose StatementBegin
CREATE FUNCTION gateway_ban(gateway TEXT, event_uuid TEXT, ban_key TEXT, ban_until BIGINT, ban_reason TEXT, ban_at BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    who    TEXT := actor_of(gateway);
    now    BIGINT := CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT);
    was    bans;
    before TEXT := '';
BEGIN
    PERFORM pg_advisory_xact_lock(123581046915073);
    SELECT * INTO was FROM bans WHERE key_id = ban_key;
    IF was.imposed_by = who AND was.imposed_at = ban_at OR was.lifted_at = 0 AND was.until >= ban_until THEN
        RETURN NULL;
    END IF;
    IF was.lifted_at = 0 AND was.until > now THEN
        before := ban_json(was);
    END IF;
    INSERT INTO bans (key_id, until, automatic, notice, reason, imposed_by, imposed_at, lifted_at)
        VALUES (ban_key, ban_until, true, '', ban_reason, who, ban_at, 0)
        ON CONFLICT (key_id) DO UPDATE SET until = excluded.until, automatic = true, notice = '', reason = excluded.reason,
            imposed_by = excluded.imposed_by, imposed_at = excluded.imposed_at, lifted_at = 0
        RETURNING * INTO was;
    RETURN append_event(123581046915073, 'petgate_events', event_uuid, now, who, 'ban.added',
        (SELECT tenant_id FROM tenant_keys WHERE id = ban_key), ban_key, '', before, ban_json(was));
END
$$;
-- +goose StatementEnd

-- A refusal that the database has lost, with its event, whose ID it returns. NULL: it is listed already.
-- +goose StatementBegin
CREATE FUNCTION gateway_report_lost(gateway TEXT, event_uuid TEXT, lost_tenant TEXT, lost_key TEXT, lost_kind TEXT, lost_at BIGINT,
    found_at BIGINT)
RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    who TEXT := actor_of(gateway);
BEGIN
    INSERT INTO lost_refusals (tenant_id, key_id, kind, at, reported_by, reported_at)
        VALUES (lost_tenant, lost_key, lost_kind, lost_at, who, found_at) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN append_event(123581046915073, 'petgate_events', event_uuid, found_at, who, 'refusal.lost', lost_tenant, lost_key, '', '',
        CAST(jsonb_strip_nulls(jsonb_build_object('kind', lost_kind, 'tenantId', lost_tenant, 'keyId', NULLIF(lost_key, ''),
            'at', NULLIF(lost_at, 0))) AS TEXT));
END
$$;
-- +goose StatementEnd

-- Who holds the writers' lock, and for how many ms at least (-1: unknown). A role does not see what other roles' sessions do, so this needs the owner's rights too.
-- +goose StatementBegin
CREATE FUNCTION writers_lock() RETURNS TABLE (pid INTEGER, role TEXT, application TEXT, address TEXT, age BIGINT) LANGUAGE sql AS $$
    SELECT a.pid, COALESCE(a.usename, ''), COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''),
        COALESCE(CAST(EXTRACT(EPOCH FROM clock_timestamp() - COALESCE(a.xact_start, a.state_change)) * 1000 AS BIGINT), -1)
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.pid <> pg_backend_pid()
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (CAST(l.classid AS BIGINT) << 32) + CAST(l.objid AS BIGINT) = 123581046915073
$$;
-- +goose StatementEnd

-- The functions run with the owner's rights, on these tables and not on temporary ones of the same names. Who may add events before this
-- migration may call them: older and newer gateways both work until roles.sql runs.
-- +goose StatementBegin
DO $$
DECLARE
    name    REGPROCEDURE;
    grantee TEXT;
BEGIN
    FOR name IN SELECT CAST(oid AS REGPROCEDURE) FROM pg_proc
        WHERE pronamespace = CAST(current_schema() AS REGNAMESPACE) AND (proname LIKE 'gateway\_%' OR proname = 'writers_lock')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', name, current_schema());
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', name);
        FOR grantee IN SELECT DISTINCT g.grantee FROM information_schema.role_table_grants AS g
            WHERE table_schema = current_schema() AND table_name = 'events' AND privilege_type = 'INSERT' AND g.grantee <> current_user
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', name, grantee);
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down

DROP FUNCTION writers_lock, gateway_report_lost, gateway_ban, ban_json, actor_of, gateway_grow_generation, gateway_register,
    gateway_heartbeat, gateway_delete_process, gateway_delete_silent, gateway_leave_unreported, gateway_take_unreported,
    gateway_claim_usage, gateway_add_usage, gateway_add_minutes, gateway_touch_keys, gateway_prune_usage, gateway_prune_minutes,
    gateway_note_gap, gateway_note_dropped, gateway_close_gap, gateway_prune_gaps, gateway_upsert_quotas, gateway_prune_quotas;
ALTER TABLE quota_records DROP CONSTRAINT quota_records_form;
ALTER TABLE usage_minutes DROP CONSTRAINT usage_minutes_form;
ALTER TABLE usage_hours DROP CONSTRAINT usage_hours_form;
ALTER TABLE lost_refusals DROP CONSTRAINT lost_refusals_form;
ALTER TABLE tenant_keys DROP CONSTRAINT tenant_keys_environment;
ALTER TABLE events DROP CONSTRAINT events_form, DROP CONSTRAINT events_id;
