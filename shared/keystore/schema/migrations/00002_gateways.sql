-- +goose Up

-- One row. Its number grows with every registration, sign-off and removal, so a gateway that has read it twice knows whether the
-- list of gateways has changed. A process registers with the number of its registration.
CREATE TABLE gateway_registry (
    generation BIGINT NOT NULL
);

INSERT INTO gateway_registry (generation) VALUES (1);

-- Every gateway process that may be accepting keys. A row goes when its process signs off, when an operator forgets it, or when
-- another gateway has watched it long enough to know that it refuses everything. Several processes may have one gateway ID: the
-- one with the largest generation is the gateway, and the others have not said yet that they have ended.
CREATE TABLE gateways_next (
    id            TEXT NOT NULL,   -- the gateway's
    incarnation   TEXT NOT NULL,   -- random: the process's
    generation    BIGINT NOT NULL, -- of its last registration
    admin_address TEXT NOT NULL,
    applied_event BIGINT NOT NULL,
    registered_at BIGINT NOT NULL, -- by the database's clock
    seen_at       BIGINT NOT NULL, -- by the database's clock
    max_age       BIGINT NOT NULL, -- ms after which it refuses everything unless it reads this database; 0 is never
    usage_batch   BIGINT NOT NULL, -- the last batch of usage that was added
    PRIMARY KEY (id, incarnation)
);

INSERT INTO gateways_next (id, incarnation, generation, admin_address, applied_event, registered_at, seen_at, max_age, usage_batch)
    SELECT id, incarnation, 1, admin_address, applied_event, registered_at, seen_at, max_age, usage_batch FROM gateways;

DROP TABLE gateways;
ALTER TABLE gateways_next RENAME TO gateways;

-- +goose Down

CREATE TABLE gateways_before (
    id            TEXT PRIMARY KEY,
    incarnation   TEXT NOT NULL,
    admin_address TEXT NOT NULL,
    applied_event BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL,
    max_age       BIGINT NOT NULL,
    usage_batch   BIGINT NOT NULL
);

INSERT INTO gateways_before (id, incarnation, admin_address, applied_event, registered_at, seen_at, max_age, usage_batch)
    SELECT id, incarnation, admin_address, applied_event, registered_at, seen_at, max_age, usage_batch FROM gateways g
    WHERE NOT EXISTS (SELECT 1 FROM gateways s WHERE s.id = g.id AND s.generation > g.generation);

DROP TABLE gateways;
ALTER TABLE gateways_before RENAME TO gateways;
DROP TABLE gateway_registry;
