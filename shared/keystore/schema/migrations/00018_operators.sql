-- +goose Up

-- Who may use the operators' API. A row ends with its revocation.
CREATE TABLE operators (
    name       TEXT PRIMARY KEY,
    role       TEXT NOT NULL,        -- read, keys or admin
    secret     TEXT NOT NULL UNIQUE, -- SHA-256 of the token, in hexadecimal digits
    created_at BIGINT NOT NULL,      -- ms since 1970
    expires_at BIGINT NOT NULL       -- ms since 1970; 0: never
);

-- What was changed by requests with an Idempotency-Key. A row is added by the transaction of its change, and is kept for a day.
CREATE TABLE operator_requests (
    id    TEXT PRIMARY KEY, -- of the operator's token and the Idempotency-Key: see keystore.Request
    body  TEXT NOT NULL,    -- SHA-256 of the request
    salt  TEXT NOT NULL,    -- makes the new token, together with the operator's token and the Idempotency-Key
    event BIGINT NOT NULL,  -- ID of the change's event
    at    BIGINT NOT NULL   -- ms since 1970
);

CREATE INDEX operator_requests_by_time ON operator_requests (at);

-- +goose Down

DROP TABLE operator_requests;
DROP TABLE operators;
