-- +goose Up

-- The requests of an hour. It is sealed when it is exported for the first time: what comes later is a correction, with the number
-- of the seal after which it came.
CREATE TABLE usage_hours_next (
    tenant_id  TEXT NOT NULL,
    hour       BIGINT NOT NULL,  -- its begin
    operation  TEXT NOT NULL,    -- '': refused before the operation was known, or counted before this column existed
    correction BIGINT NOT NULL,  -- 0: counted before the hour was sealed
    charged    BOOLEAN NOT NULL, -- taken from the quota
    key_id     TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    requests   BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, hour, operation, correction, charged, key_id, outcome)
);

INSERT INTO usage_hours_next (tenant_id, hour, operation, correction, charged, key_id, outcome, requests)
    SELECT tenant_id, hour, '', 0, outcome IN ('ok', 'no_such_route', 'method_not_allowed', 'insufficient_scope', 'operation_removed',
        'upstream_unreachable', 'upstream_refused', 'upstream_overloaded', 'upstream_timeout'), key_id, outcome, requests
    FROM usage_hours;

DROP TABLE usage_hours;
ALTER TABLE usage_hours_next RENAME TO usage_hours;

CREATE INDEX usage_hours_by_hour ON usage_hours (hour, tenant_id);
CREATE INDEX usage_hours_corrections ON usage_hours (correction, hour, tenant_id) WHERE correction > 0;

-- How often each tenant asked its quota, minute by minute.
CREATE TABLE usage_minutes (
    tenant_id TEXT NOT NULL,
    hour      BIGINT NOT NULL, -- its begin
    gateway   TEXT NOT NULL,
    attempts  TEXT NOT NULL,   -- for each minute with attempts: the character '@' + minute, and their number. A minute may be repeated: add
    PRIMARY KEY (tenant_id, hour, gateway)
);

-- One row. The hours before through are sealed.
CREATE TABLE usage_ledger (
    installation TEXT NOT NULL,   -- random: names this database to receivers of usage; '' before the first seal
    seal         BIGINT NOT NULL, -- the number of the last seal
    through      BIGINT NOT NULL
);

INSERT INTO usage_ledger (installation, seal, through) VALUES ('', 0, 0);

-- What each receiver of usage has got: the hours before hour, of this hour the tenants up to tenant_id, and the corrections before
-- the number seal.
CREATE TABLE usage_exports (
    destination TEXT PRIMARY KEY,
    since       BIGINT NOT NULL, -- the first hour that it gets
    hour        BIGINT NOT NULL,
    tenant_id   TEXT NOT NULL,
    seal        BIGINT NOT NULL,
    moved_at    BIGINT NOT NULL
);

-- Gateway processes that ended without saying that all their usage is stored. A process that comes back leaves this table.
CREATE TABLE usage_gaps (
    gateway     TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    cause       TEXT NOT NULL,   -- killed, forgotten, fenced, unwritten
    since       BIGINT NOT NULL, -- what it did before is stored
    seen_at     BIGINT NOT NULL, -- its last heartbeat, by the database's clock
    noted_at    BIGINT NOT NULL, -- by the database's clock
    usage_batch BIGINT NOT NULL,
    PRIMARY KEY (gateway, incarnation)
);

ALTER TABLE gateways ADD COLUMN usage_through BIGINT NOT NULL DEFAULT 0; -- all that it did before is stored

-- +goose Down

ALTER TABLE gateways DROP COLUMN usage_through;
DROP TABLE usage_gaps;
DROP TABLE usage_exports;
DROP TABLE usage_ledger;
DROP TABLE usage_minutes;

CREATE TABLE usage_hours_before (
    tenant_id TEXT NOT NULL,
    hour      BIGINT NOT NULL,
    key_id    TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    requests  BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, hour, key_id, outcome)
);

INSERT INTO usage_hours_before (tenant_id, hour, key_id, outcome, requests)
    SELECT tenant_id, hour, key_id, outcome, CAST(SUM(requests) AS BIGINT) FROM usage_hours GROUP BY tenant_id, hour, key_id, outcome;

DROP TABLE usage_hours;
ALTER TABLE usage_hours_before RENAME TO usage_hours;
