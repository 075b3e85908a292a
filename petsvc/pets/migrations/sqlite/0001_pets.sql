-- +goose Up
-- AUTOINCREMENT: the id of a row that was removed never names another one.
CREATE TABLE pets (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT    NOT NULL,
    category_id INTEGER NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('available', 'pending', 'sold'))
);

-- Pages of one status, by id.
CREATE INDEX pets_by_status ON pets (status, id);

-- The pets that were stored for a request with an Idempotency-Key, so that a repetition gets the
-- same response.
CREATE TABLE pet_requests (
    id          BLOB    PRIMARY KEY NOT NULL, -- SHA-256 of the tenant and its key
    fingerprint BLOB    NOT NULL,             -- SHA-256 of the pet as it was sent
    pet_id      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL              -- Unix milliseconds
);

-- The oldest rows, which are removed first.
CREATE INDEX pet_requests_by_age ON pet_requests (created_at);
