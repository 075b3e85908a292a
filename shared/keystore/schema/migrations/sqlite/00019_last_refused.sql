-- +goose Up

-- Last use no longer counts calls that were refused before they were charged. The times from before do.
ALTER TABLE tenant_keys ADD COLUMN last_refused_at BIGINT NOT NULL DEFAULT 0; -- such a call

-- +goose Down

ALTER TABLE tenant_keys DROP COLUMN last_refused_at;
