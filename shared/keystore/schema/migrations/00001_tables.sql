-- The tables of both databases. What only one of them has follows in the file of the same name in
-- postgres or sqlite.
--
-- Times are Unix milliseconds; 0 is never. An hour is the instant of its begin. A limit of 0 is not
-- set. An ID is a text with a prefix that names its kind; '' is none. To SQLite, BYTEA and BOOLEAN
-- are names without a meaning.

-- +goose Up

CREATE TABLE plans (
    name              TEXT PRIMARY KEY,
    minute_limit      BIGINT NOT NULL CHECK (minute_limit >= 0),
    day_limit         BIGINT NOT NULL CHECK (day_limit >= 0),
    month_limit       BIGINT NOT NULL DEFAULT 0 CHECK (month_limit >= 0),
    test_minute_limit BIGINT NOT NULL DEFAULT 0 CHECK (test_minute_limit >= 0), -- in place of minute_limit
    created_at        BIGINT NOT NULL -- 0: came with these tables
);

INSERT INTO plans (name, minute_limit, day_limit, created_at) VALUES
    ('free', 60, 1000, 0),
    ('pro', 300, 10000, 0),
    ('business', 1000, 100000, 0),
    ('enterprise', 0, 0, 0); -- agreed with each tenant, as its own limits

CREATE TABLE tenants (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    plan         TEXT NOT NULL REFERENCES plans (name),
    minute_limit BIGINT NOT NULL CHECK (minute_limit >= 0), -- the three limits take the place of the plan's
    day_limit    BIGINT NOT NULL CHECK (day_limit >= 0),
    month_limit  BIGINT NOT NULL DEFAULT 0 CHECK (month_limit >= 0),
    month_starts BIGINT NOT NULL DEFAULT 0 CHECK (month_starts BETWEEN 0 AND 28), -- day of the UTC month; 0: the first
    suspended    BOOLEAN NOT NULL,
    created_at   BIGINT NOT NULL,
    usage_since  BIGINT NOT NULL DEFAULT 0 -- the last reset: the tenant's use counts from there
);

-- Lists of tenants: the newest first, and how many each plan has.
CREATE INDEX tenants_by_age ON tenants (created_at, id);
CREATE INDEX tenants_of_plan ON tenants (plan);

CREATE TABLE tenant_keys (
    id              TEXT PRIMARY KEY,
    tenant_id       TEXT NOT NULL REFERENCES tenants (id),
    hash            BYTEA NOT NULL UNIQUE, -- SHA-256 of the token, which is kept nowhere
    name            TEXT NOT NULL,
    hint            TEXT NOT NULL, -- the token's last characters
    environment     TEXT NOT NULL, -- live or test
    scopes          TEXT NOT NULL, -- names, separated by spaces
    allow_list      TEXT NOT NULL, -- CIDRs, separated by spaces; '': from everywhere
    created_at      BIGINT NOT NULL,
    expires_at      BIGINT NOT NULL,
    revoked_at      BIGINT NOT NULL,
    disabled_at     BIGINT NOT NULL DEFAULT 0, -- 0 once the key is revoked
    grace_ends_at   BIGINT NOT NULL,           -- of a rotated key
    replaced_by     TEXT NOT NULL,             -- the key that has replaced a rotated key
    last_used_at    BIGINT NOT NULL,           -- a call that was charged, or answered free of charge
    last_refused_at BIGINT NOT NULL DEFAULT 0, -- a call that was refused before it was charged
    minute_limit    BIGINT NOT NULL DEFAULT 0 CHECK (minute_limit >= 0), -- the key's own limits, within its tenant's
    day_limit       BIGINT NOT NULL DEFAULT 0 CHECK (day_limit >= 0)
);

-- Lists of keys: of all tenants and of one, the newest first.
CREATE INDEX tenant_keys_by_age ON tenant_keys (created_at, id);
CREATE INDEX tenant_keys_of_tenant ON tenant_keys (tenant_id, created_at, id);

-- A row for each key that was ever banned: its latest ban.
CREATE TABLE bans (
    key_id     TEXT PRIMARY KEY REFERENCES tenant_keys (id),
    until      BIGINT NOT NULL,
    automatic  BOOLEAN NOT NULL DEFAULT true, -- imposed by a gateway, not by an operator
    notice     TEXT NOT NULL DEFAULT '',      -- the operator's words for the tenant
    reason     TEXT NOT NULL,
    imposed_by TEXT NOT NULL,
    imposed_at BIGINT NOT NULL,
    lifted_at  BIGINT NOT NULL
);

CREATE INDEX bans_by_end ON bans (until, key_id) WHERE lifted_at = 0;

-- The log of all changes, which gateways follow and auditors read. IDs are drawn under one lock and
-- become visible in their order. So a reader that has seen an event has seen all events before it.
CREATE TABLE events (
    id          BIGINT PRIMARY KEY,
    uuid        TEXT NOT NULL, -- random: after a fail-over, an ID may be drawn a second time
    at          BIGINT NOT NULL,
    actor       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    key_id      TEXT NOT NULL,
    plan        TEXT NOT NULL,
    before_json TEXT NOT NULL, -- the record before the change; '': there was none
    after_json  TEXT NOT NULL
);

-- With the ID, the index alone says where the events after an instant begin.
CREATE INDEX events_by_time ON events (at, id);

-- Pages of the events of one tenant, key, kind or actor.
CREATE INDEX events_of_tenant ON events (tenant_id, id);
CREATE INDEX events_of_key ON events (key_id, id);
CREATE INDEX events_of_kind ON events (kind, id);
CREATE INDEX events_of_actor ON events (actor, id);

-- What gateways had in force when the database was replaced by an older copy that lacks it. It
-- stays in force at every gateway until an operator repeats the change or drops the row.
CREATE TABLE lost_refusals (
    tenant_id   TEXT NOT NULL,
    key_id      TEXT NOT NULL,   -- '': the tenant's own
    kind        TEXT NOT NULL,   -- revoked, disabled, rotated, suspended
    at          BIGINT NOT NULL, -- of the change, or the end of a rotated key's grace; 0 for a suspension
    reported_by TEXT NOT NULL,   -- a gateway
    reported_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, key_id, kind)
);

-- One row. Its number grows with every registration, sign-off and removal. So a gateway that has
-- read it twice knows whether the list of gateways has changed. A process registers with the number
-- of its registration.
CREATE TABLE gateway_registry (
    generation BIGINT NOT NULL
);

INSERT INTO gateway_registry (generation) VALUES (1);

-- Every gateway process that may be accepting keys. A row goes when its process signs off, when an
-- operator forgets it, or when another gateway has watched it long enough to know that it refuses
-- everything. Several processes may have one gateway ID: the one with the largest generation is the
-- gateway, and the others have not said yet that they have ended.
CREATE TABLE gateways (
    id            TEXT NOT NULL,   -- the gateway's
    incarnation   TEXT NOT NULL,   -- random: the process's
    generation    BIGINT NOT NULL, -- of its last registration
    admin_address TEXT NOT NULL,
    applied_event BIGINT NOT NULL,
    registered_at BIGINT NOT NULL, -- by the database's clock
    seen_at       BIGINT NOT NULL, -- by the database's clock
    max_age       BIGINT NOT NULL, -- ms without this database after which it refuses everything; 0: never
    usage_batch   BIGINT NOT NULL, -- the last batch of usage that was added
    usage_through BIGINT NOT NULL DEFAULT 0, -- all that it did before is stored
    document      TEXT NOT NULL DEFAULT '',  -- what it says of the API that it serves, as JSON: see Document
    PRIMARY KEY (id, incarnation)
);

-- The requests that a gateway admitted while Redis did not answer, and had not reported to Redis
-- when it signed off. The other gateways count them. When Redis is back, one of them takes the row
-- and reports them.
CREATE TABLE unreported_requests (
    incarnation TEXT PRIMARY KEY, -- of the process
    requests    TEXT NOT NULL     -- of each tenant; only gateways read it
);

-- The requests of an hour. The hour is sealed when it is exported for the first time. What comes
-- later is a correction, with the number of the seal after which it came.
CREATE TABLE usage_hours (
    tenant_id  TEXT NOT NULL,
    hour       BIGINT NOT NULL,
    operation  TEXT NOT NULL,    -- '': refused before the operation was known
    correction BIGINT NOT NULL,  -- 0: counted before the hour was sealed
    charged    BOOLEAN NOT NULL, -- taken from the quota
    key_id     TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    requests   BIGINT NOT NULL,
    more_units BIGINT NOT NULL DEFAULT 0,      -- what the requests cost beyond one unit of the limits each
    is_test    BOOLEAN NOT NULL DEFAULT false, -- with a test key, so it is on no bill
    PRIMARY KEY (tenant_id, hour, operation, correction, charged, key_id, outcome)
);

CREATE INDEX usage_hours_by_hour ON usage_hours (hour, tenant_id);
CREATE INDEX usage_hours_corrections ON usage_hours (correction, hour, tenant_id) WHERE correction > 0;

-- For those who call deprecated operations.
CREATE INDEX usage_hours_of_operation ON usage_hours (operation, hour);

-- How often each tenant asked its quota, minute by minute.
CREATE TABLE usage_minutes (
    tenant_id TEXT NOT NULL,
    hour      BIGINT NOT NULL,
    gateway   TEXT NOT NULL,
    attempts  TEXT NOT NULL, -- of each minute: the character '@' + minute, and a number; repeated minutes add up
    is_test   BOOLEAN NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, hour, gateway)
);

-- One row. The hours before through are sealed.
CREATE TABLE usage_ledger (
    installation TEXT NOT NULL,   -- random: names this database to receivers of usage; '' before the first seal
    seal         BIGINT NOT NULL, -- the number of the last seal
    through      BIGINT NOT NULL
);

INSERT INTO usage_ledger (installation, seal, through) VALUES ('', 0, 0);

-- What each receiver of usage has got: the hours before hour, of this hour the tenants up to
-- tenant_id, and the corrections before the number seal.
CREATE TABLE usage_exports (
    destination TEXT PRIMARY KEY,
    since       BIGINT NOT NULL, -- the first hour that it gets
    hour        BIGINT NOT NULL,
    tenant_id   TEXT NOT NULL,
    seal        BIGINT NOT NULL,
    moved_at    BIGINT NOT NULL
);

-- Gateway processes that ended without saying that all their usage is stored. A process that comes
-- back leaves this table.
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

-- What in-process quota stores remember while no gateway runs. A tenant has a record for its own
-- use, one for the use of its test keys, and one for each key with limits of its own.
CREATE TABLE quota_records (
    tenant_id TEXT PRIMARY KEY, -- then, as they apply: ':test', ':' + key, ':' + usage_since. See QuotaName
    record    BYTEA NOT NULL,
    saved_at  BIGINT NOT NULL
);

-- Who may use the operators' console. A row begins as an invitation, whose secret is a code for one
-- use. The browser that has the code opens the session. From then on the secret is the session's
-- token.
CREATE TABLE console_sessions (
    id        TEXT PRIMARY KEY,
    secret    TEXT NOT NULL UNIQUE, -- SHA-256 of the code or of the token, in hexadecimal digits
    opened    BOOLEAN NOT NULL,     -- the secret is a token
    actor     TEXT NOT NULL,        -- who does what this session changes
    read_only BOOLEAN NOT NULL,     -- it may not change anything
    address   TEXT NOT NULL,        -- of the only admin port that opens the session: the link leads there
    lasts     BIGINT NOT NULL,      -- ms from its opening
    ends_at   BIGINT NOT NULL       -- of the code or of the session, by the database's clock
);

-- Who may use the operators' API. A row ends with its revocation.
CREATE TABLE operators (
    name       TEXT PRIMARY KEY,
    role       TEXT NOT NULL,        -- read, keys or admin
    secret     TEXT NOT NULL UNIQUE, -- SHA-256 of the token, in hexadecimal digits
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);

-- What was changed by requests with an Idempotency-Key. A row is added by the transaction of its
-- change, and is kept for a day.
CREATE TABLE operator_requests (
    id    TEXT PRIMARY KEY, -- of the operator's token and the Idempotency-Key: see keystore.Request
    body  TEXT NOT NULL,    -- SHA-256 of the request
    salt  TEXT NOT NULL,    -- makes the new token, together with the operator's token and the Idempotency-Key
    event BIGINT NOT NULL,  -- ID of the change's event
    at    BIGINT NOT NULL
);

CREATE INDEX operator_requests_by_time ON operator_requests (at);
