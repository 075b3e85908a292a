-- +goose Up

-- Who may use the operators' console. A row begins as an invitation, whose secret is a code for one use. The browser that has the
-- code opens the session; from then on the secret is the session's token.
CREATE TABLE console_sessions (
    id        TEXT PRIMARY KEY,
    secret    TEXT NOT NULL UNIQUE, -- SHA-256 of the code or of the token, in hexadecimal digits
    opened    BOOLEAN NOT NULL,     -- the secret is a token
    actor     TEXT NOT NULL,        -- who does what this session changes
    read_only BOOLEAN NOT NULL,     -- it may not change anything
    address   TEXT NOT NULL,        -- of the only admin port that opens the session: the one that the link leads to
    lasts     BIGINT NOT NULL,      -- ms from its opening
    ends_at   BIGINT NOT NULL       -- of the code or of the session, in ms since 1970 by the database's clock
);

-- +goose Down

DROP TABLE console_sessions;
