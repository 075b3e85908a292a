-- +goose Up

-- A tenant's last reset: its use counts from there; 0 is never. It is a part of the name of the record that counts the use. So
-- quota_records.tenant_id is the tenant's ID, followed by a colon and this instant if it is not 0.
ALTER TABLE tenants ADD COLUMN usage_since BIGINT NOT NULL DEFAULT 0;

-- +goose Down

DELETE FROM quota_records WHERE tenant_id LIKE '%:%';
ALTER TABLE tenants DROP COLUMN usage_since;
