-- All times are Unix milliseconds, 0 is never. Limits of 0 are not set. IDs are texts with a prefix that names their kind; ''
-- is none. One text for PostgreSQL and SQLite: to SQLite, BYTEA and BOOLEAN are names without a meaning.

-- +goose Up

CREATE TABLE plans (
    name         TEXT PRIMARY KEY,
    minute_limit BIGINT NOT NULL CHECK (minute_limit >= 0),
    day_limit    BIGINT NOT NULL CHECK (day_limit >= 0),
    created_at   BIGINT NOT NULL -- 0: came with these tables
);

INSERT INTO plans (name, minute_limit, day_limit, created_at) VALUES
    ('free', 60, 1000, 0),
    ('pro', 300, 10000, 0),
    ('business', 1000, 100000, 0),
    ('enterprise', 0, 0, 0); -- agreed with each tenant, as its overrides

CREATE TABLE tenants (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    plan         TEXT NOT NULL REFERENCES plans (name),
    minute_limit BIGINT NOT NULL CHECK (minute_limit >= 0), -- overrides
    day_limit    BIGINT NOT NULL CHECK (day_limit >= 0),
    suspended    BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL
);

CREATE TABLE tenant_keys (
    id            TEXT PRIMARY KEY,
    tenant_id     TEXT NOT NULL REFERENCES tenants (id),
    hash          BYTEA NOT NULL UNIQUE, -- SHA-256 of the token, which is kept nowhere
    name          TEXT NOT NULL,
    hint          TEXT NOT NULL,         -- the token's last characters
    environment   TEXT NOT NULL,
    scopes        TEXT NOT NULL,         -- names, separated by spaces
    allow_list    TEXT NOT NULL,         -- CIDRs, separated by spaces; '' is from everywhere
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    revoked_at    BIGINT NOT NULL,
    disabled_at   BIGINT NOT NULL DEFAULT 0, -- 0 once it is revoked
    grace_ends_at BIGINT NOT NULL,       -- of a rotated key
    replaced_by   TEXT NOT NULL,         -- the key that a rotated key was replaced by
    last_used_at  BIGINT NOT NULL
);

CREATE INDEX tenant_keys_of_tenant ON tenant_keys (tenant_id);

-- One row per key that was ever banned: its latest ban.
CREATE TABLE bans (
    key_id     TEXT PRIMARY KEY REFERENCES tenant_keys (id),
    until      BIGINT NOT NULL,
    reason     TEXT NOT NULL,
    imposed_by TEXT NOT NULL,
    imposed_at BIGINT NOT NULL,
    lifted_at  BIGINT NOT NULL
);

-- The log of all changes, which gateways follow and auditors read. IDs are drawn under one lock and become visible in their
-- order, so that a reader who has seen one has seen all before it.
CREATE TABLE events (
    id          BIGINT PRIMARY KEY,
    uuid        TEXT NOT NULL, -- random: after a fail-over, an ID may be drawn a second time
    at          BIGINT NOT NULL,
    actor       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    key_id      TEXT NOT NULL,
    plan        TEXT NOT NULL,
    before_json TEXT NOT NULL, -- '' is none
    after_json  TEXT NOT NULL
);

CREATE INDEX events_by_time ON events (at);

-- Every gateway that may be accepting keys. A row goes when its gateway signs off or an operator forgets it.
CREATE TABLE gateways (
    id            TEXT PRIMARY KEY,
    incarnation   TEXT NOT NULL,   -- random: of the process that registered last
    admin_address TEXT NOT NULL,
    applied_event BIGINT NOT NULL,
    registered_at BIGINT NOT NULL, -- by the database's clock
    seen_at       BIGINT NOT NULL, -- by the database's clock
    max_age       BIGINT NOT NULL, -- ms after which it refuses everything unless it reads this database; 0 is never
    usage_batch   BIGINT NOT NULL  -- the last batch of usage that was added
);

CREATE TABLE usage_hours (
    tenant_id TEXT NOT NULL,
    hour      BIGINT NOT NULL, -- its begin
    key_id    TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    requests  BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, hour, key_id, outcome)
);

-- What in-process quota stores remember while no gateway runs.
CREATE TABLE quota_records (
    tenant_id TEXT PRIMARY KEY,
    record    BYTEA NOT NULL,
    saved_at  BIGINT NOT NULL
);

-- +goose Down

DROP TABLE quota_records;
DROP TABLE usage_hours;
DROP TABLE gateways;
DROP TABLE events;
DROP TABLE bans;
DROP TABLE tenant_keys;
DROP TABLE tenants;
DROP TABLE plans;
