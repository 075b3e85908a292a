-- +goose Up

CREATE INDEX tenant_keys_by_age ON tenant_keys (created_at, id);

DROP INDEX tenant_keys_of_tenant;
CREATE INDEX tenant_keys_of_tenant ON tenant_keys (tenant_id, created_at, id);

-- +goose Down

DROP INDEX tenant_keys_of_tenant;
CREATE INDEX tenant_keys_of_tenant ON tenant_keys (tenant_id);

DROP INDEX tenant_keys_by_age;
