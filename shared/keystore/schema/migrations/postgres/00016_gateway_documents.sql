-- +goose Up

-- What the gateway says of the API that it serves, as JSON: see Document. Empty: it did not say anything.
ALTER TABLE gateways ADD COLUMN document TEXT NOT NULL DEFAULT '';

-- +goose StatementBegin
CREATE FUNCTION gateway_describe(TEXT, TEXT, TEXT) RETURNS VOID LANGUAGE sql AS $$
    UPDATE gateways SET document = $3 WHERE id = $1 AND incarnation = $2
$$;
-- +goose StatementEnd

-- Who may register may also describe.
-- +goose StatementBegin
DO $$
DECLARE
    grantee TEXT;
BEGIN
    EXECUTE format('ALTER FUNCTION gateway_describe SECURITY DEFINER SET search_path = %I, pg_temp', current_schema());
    REVOKE EXECUTE ON FUNCTION gateway_describe FROM PUBLIC;
    FOR grantee IN SELECT g.grantee FROM information_schema.role_routine_grants AS g
        WHERE routine_schema = current_schema() AND routine_name = 'gateway_register' AND g.grantee <> current_user
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION gateway_describe TO %I', grantee);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down

DROP FUNCTION gateway_describe;
ALTER TABLE gateways DROP COLUMN document;
