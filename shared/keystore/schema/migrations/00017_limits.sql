-- +goose Up

-- Limits of 0 are not set.
ALTER TABLE plans ADD COLUMN month_limit BIGINT NOT NULL DEFAULT 0 CHECK (month_limit >= 0);
ALTER TABLE plans ADD COLUMN test_minute_limit BIGINT NOT NULL DEFAULT 0 CHECK (test_minute_limit >= 0); -- of test keys, in place of minute_limit

ALTER TABLE tenants ADD COLUMN month_limit BIGINT NOT NULL DEFAULT 0 CHECK (month_limit >= 0);
ALTER TABLE tenants ADD COLUMN month_starts BIGINT NOT NULL DEFAULT 0 CHECK (month_starts BETWEEN 0 AND 28); -- day of the UTC month; 0: the first

-- The key's own limits, within its tenant's.
ALTER TABLE tenant_keys ADD COLUMN minute_limit BIGINT NOT NULL DEFAULT 0 CHECK (minute_limit >= 0);
ALTER TABLE tenant_keys ADD COLUMN day_limit BIGINT NOT NULL DEFAULT 0 CHECK (day_limit >= 0);

-- +goose Down

ALTER TABLE tenant_keys DROP COLUMN day_limit;
ALTER TABLE tenant_keys DROP COLUMN minute_limit;
ALTER TABLE tenants DROP COLUMN month_starts;
ALTER TABLE tenants DROP COLUMN month_limit;
ALTER TABLE plans DROP COLUMN test_minute_limit;
ALTER TABLE plans DROP COLUMN month_limit;
