-- +goose Up

-- Last use no longer counts calls that were refused before they were charged. The times from before do.
ALTER TABLE tenant_keys ADD COLUMN last_refused_at BIGINT NOT NULL DEFAULT 0; -- such a call

-- Earlier gateways call it too, with the same rows.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION gateway_touch_keys(TEXT) RETURNS VOID LANGUAGE sql AS $$
    UPDATE tenant_keys SET last_used_at = CASE WHEN last_used_at < u.used_at THEN u.used_at ELSE last_used_at END,
        last_refused_at = CASE WHEN last_refused_at < u.refused_at THEN u.refused_at ELSE last_refused_at END
    FROM (SELECT key_id, MAX(CASE WHEN used THEN at ELSE 0 END) AS used_at, MAX(CASE WHEN used THEN 0 ELSE at END) AS refused_at
        FROM (SELECT value->>'keyId' AS key_id, CAST(value->>'lastAt' AS BIGINT) AS at,
            CAST(value->>'charged' AS BOOLEAN) OR value->>'outcome' IN ('ok', 'report') AS used FROM json_array_elements(CAST($1 AS json)) AS r(value)) AS requests GROUP BY key_id) AS u
    WHERE tenant_keys.id = u.key_id AND (last_used_at <= u.used_at - 60000 OR last_refused_at <= u.refused_at - 60000)
$$;
-- +goose StatementEnd

-- A replaced function keeps its owner and who may call it, but not what follows.
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION gateway_touch_keys SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION gateway_touch_keys(TEXT) RETURNS VOID LANGUAGE sql AS $$
    UPDATE tenant_keys SET last_used_at = u.last_at
    FROM (SELECT value->>'keyId' AS key_id, MAX(CAST(value->>'lastAt' AS BIGINT)) AS last_at FROM json_array_elements(CAST($1 AS json)) AS r(value) GROUP BY 1) AS u
    WHERE tenant_keys.id = u.key_id AND tenant_keys.last_used_at <= u.last_at - 60000
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION gateway_touch_keys SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd

ALTER TABLE tenant_keys DROP COLUMN last_refused_at;
