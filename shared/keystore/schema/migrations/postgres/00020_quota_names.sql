-- +goose Up

-- The use of test keys, and of a key that has limits of its own, has records of its own.
ALTER TABLE quota_records DROP CONSTRAINT quota_records_form;
ALTER TABLE quota_records ADD CONSTRAINT quota_records_form CHECK (
    tenant_id ~ '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}(:test)?(:key_[0-9abcdefghjkmnpqrstvwxyz]{16})?(:[0-9]+)?$') NOT VALID;

-- +goose Down

DELETE FROM quota_records WHERE tenant_id LIKE '%:test%' OR tenant_id LIKE '%:key%';
ALTER TABLE quota_records DROP CONSTRAINT quota_records_form;
ALTER TABLE quota_records ADD CONSTRAINT quota_records_form CHECK (tenant_id ~ '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}(:[0-9]+)?$') NOT VALID;
