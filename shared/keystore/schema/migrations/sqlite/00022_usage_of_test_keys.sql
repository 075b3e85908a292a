-- +goose Up

-- Calls with test keys are on no bill, and a request may cost more than one unit of the limits.
ALTER TABLE usage_hours ADD COLUMN is_test BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE usage_hours ADD COLUMN more_units BIGINT NOT NULL DEFAULT 0; -- what the requests cost beyond one unit each
ALTER TABLE usage_minutes ADD COLUMN is_test BOOLEAN NOT NULL DEFAULT false;

-- What was sealed stays as it is: receivers may have it already, with the calls of test keys.
UPDATE usage_hours SET is_test = true FROM usage_ledger l
    WHERE key_id IN (SELECT id FROM tenant_keys WHERE environment = 'test') AND (hour >= l.through OR correction = l.seal);

-- Earlier gateways do not say what is a test. Without gateways, it is a restore that adds rows, which it does not change.
-- +goose StatementBegin
CREATE TRIGGER usage_hours_of_test_keys AFTER INSERT ON usage_hours
    WHEN NOT NEW.is_test AND EXISTS (SELECT 1 FROM tenant_keys WHERE id = NEW.key_id AND environment = 'test')
        AND EXISTS (SELECT 1 FROM gateways) AND EXISTS (SELECT 1 FROM usage_ledger WHERE NEW.hour >= through OR NEW.correction = seal)
    BEGIN UPDATE usage_hours SET is_test = true WHERE rowid = NEW.rowid; END;
-- +goose StatementEnd

-- +goose Down

DROP TRIGGER usage_hours_of_test_keys;
ALTER TABLE usage_minutes DROP COLUMN is_test;
ALTER TABLE usage_hours DROP COLUMN is_test;
ALTER TABLE usage_hours DROP COLUMN more_units;
