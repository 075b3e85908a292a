-- +goose Up

-- What gateways had in force when the database was replaced by an older copy that lacks it. It stays in force at every gateway
-- until an operator repeats the change or drops the row.
CREATE TABLE lost_refusals (
    tenant_id   TEXT NOT NULL,
    key_id      TEXT NOT NULL,   -- '': the tenant's own
    kind        TEXT NOT NULL,   -- revoked, rotated, suspended
    at          BIGINT NOT NULL, -- of the revocation, or of the end of a rotated key's grace; 0 for a suspension
    reported_by TEXT NOT NULL,   -- a gateway
    reported_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, key_id, kind)
);

-- +goose Down

DROP TABLE lost_refusals;
