-- +goose Up
CREATE TABLE pets (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        TEXT   NOT NULL,
    category_id BIGINT NOT NULL,
    status      TEXT   NOT NULL CHECK (status IN ('available', 'pending', 'sold'))
);

-- Pages of one status, by id.
CREATE INDEX pets_by_status ON pets (status, id);

-- The pets that were stored for a request with an Idempotency-Key, so that a repetition gets the
-- same response.
CREATE TABLE pet_requests (
    id          BYTEA  PRIMARY KEY, -- SHA-256 of the tenant and its key
    fingerprint BYTEA  NOT NULL,    -- SHA-256 of the pet as it was sent
    pet_id      BIGINT NOT NULL,
    created_at  BIGINT NOT NULL     -- Unix milliseconds
);

-- The oldest rows, which are removed first.
CREATE INDEX pet_requests_by_age ON pet_requests (created_at);
