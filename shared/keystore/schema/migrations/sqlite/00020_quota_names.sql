-- +goose Up

-- The use of test keys, and of a key that has limits of its own, has records of its own. Any name of a record fits here.

-- +goose Down

DELETE FROM quota_records WHERE tenant_id LIKE '%:test%' OR tenant_id LIKE '%:key%';
