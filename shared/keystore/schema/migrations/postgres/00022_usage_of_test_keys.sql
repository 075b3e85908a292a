-- +goose Up

-- Calls with test keys are on no bill, and a request may cost more than one unit of the limits.
ALTER TABLE usage_hours
    ADD COLUMN is_test BOOLEAN NOT NULL DEFAULT false,
    ADD COLUMN more_units BIGINT NOT NULL DEFAULT 0, -- what the requests cost beyond one unit each
    ADD CONSTRAINT usage_hours_units CHECK (more_units >= 0) NOT VALID;
ALTER TABLE usage_minutes ADD COLUMN is_test BOOLEAN NOT NULL DEFAULT false;

-- What was sealed stays as it is: receivers may have it already, with the calls of test keys.
UPDATE usage_hours AS u SET is_test = true FROM tenant_keys k, usage_ledger l
    WHERE k.environment = 'test' AND u.tenant_id = k.tenant_id AND u.key_id = k.id AND (u.hour >= l.through OR u.correction = l.seal);

-- Earlier gateways call these functions too. Their rows have neither units nor test, so the key says whether it is a test key.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION gateway_add_usage(TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO usage_hours (tenant_id, hour, operation, correction, charged, key_id, outcome, requests, more_units, is_test)
    SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), value->>'operation',
        CASE WHEN CAST(value->>'hour' AS BIGINT) < (SELECT through FROM usage_ledger) THEN (SELECT seal FROM usage_ledger) ELSE 0 END,
        CAST(value->>'charged' AS BOOLEAN), COALESCE(value->>'keyId', ''), value->>'outcome',
        CAST(value->>'requests' AS BIGINT), COALESCE(CAST(value->>'moreUnits' AS BIGINT), 0),
        COALESCE(CAST(value->>'test' AS BOOLEAN), false)
            OR EXISTS (SELECT 1 FROM tenant_keys k WHERE k.id = value->>'keyId' AND k.environment = 'test')
    FROM json_array_elements(CAST($1 AS json)) AS r(value) WHERE true
    ON CONFLICT (tenant_id, hour, operation, correction, charged, key_id, outcome) DO UPDATE SET
        requests = usage_hours.requests + excluded.requests, more_units = usage_hours.more_units + excluded.more_units
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION gateway_add_minutes(TEXT, TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO usage_minutes (tenant_id, hour, gateway, attempts, is_test)
    SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), CAST($2 AS TEXT), value->>'attempts',
        COALESCE(CAST(value->>'test' AS BOOLEAN), false) FROM json_array_elements(CAST($1 AS json)) AS r(value) WHERE true
    ON CONFLICT (tenant_id, hour, gateway) DO UPDATE SET attempts = usage_minutes.attempts || excluded.attempts
$$;
-- +goose StatementEnd

-- A replaced function keeps its owner and who may call it, but not what follows.
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION gateway_add_usage SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION gateway_add_minutes SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION gateway_add_usage(TEXT) RETURNS VOID LANGUAGE sql AS $$
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
CREATE OR REPLACE FUNCTION gateway_add_minutes(TEXT, TEXT) RETURNS VOID LANGUAGE sql AS $$
    INSERT INTO usage_minutes (tenant_id, hour, gateway, attempts)
    SELECT value->>'tenantId', CAST(value->>'hour' AS BIGINT), CAST($2 AS TEXT), value->>'attempts' FROM json_array_elements(CAST($1 AS json)) AS r(value) WHERE true
    ON CONFLICT (tenant_id, hour, gateway) DO UPDATE SET attempts = usage_minutes.attempts || excluded.attempts
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION gateway_add_usage SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION gateway_add_minutes SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
END
$$;
-- +goose StatementEnd

ALTER TABLE usage_minutes DROP COLUMN is_test;
ALTER TABLE usage_hours DROP CONSTRAINT usage_hours_units, DROP COLUMN is_test, DROP COLUMN more_units;
