
-- What no program can read is refused.

-- +goose StatementBegin
CREATE TRIGGER events_form BEFORE INSERT ON events
    WHEN NOT (NEW.id BETWEEN 1 AND 9007199254740991 -- exact as a number of JSON
        AND NEW.actor <> '' AND NEW.kind <> '' AND NEW.kind NOT GLOB '*[^a-z.-]*'
        AND (NEW.tenant_id = '' OR length(NEW.tenant_id) = 20 AND NEW.tenant_id GLOB 'ten_*'
            AND substr(NEW.tenant_id, 5) NOT GLOB '*[^0-9abcdefghjkmnpqrstvwxyz]*')
        AND (NEW.key_id = '' OR length(NEW.key_id) = 20 AND NEW.key_id GLOB 'key_*'
            AND substr(NEW.key_id, 5) NOT GLOB '*[^0-9abcdefghjkmnpqrstvwxyz]*'))
    BEGIN SELECT RAISE(ABORT, 'an event has a wrong form'); END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER tenant_keys_environment BEFORE INSERT ON tenant_keys WHEN NEW.environment NOT IN ('live', 'test')
    BEGIN SELECT RAISE(ABORT, 'a key has an unknown environment'); END;
-- +goose StatementEnd
