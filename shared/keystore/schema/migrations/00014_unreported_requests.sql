-- +goose Up

-- The requests that a gateway admitted while Redis did not answer, and had not reported to Redis when it signed off. The other gateways
-- count them. When Redis is back, one of them takes the row and reports them.
CREATE TABLE unreported_requests (
    incarnation TEXT PRIMARY KEY, -- of the process
    requests    TEXT NOT NULL     -- of each tenant; only gateways read it
);

-- +goose Down

DROP TABLE unreported_requests;
