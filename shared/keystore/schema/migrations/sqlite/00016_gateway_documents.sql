-- +goose Up

-- What the gateway says of the API that it serves, as JSON: see Document. Empty: it did not say anything.
ALTER TABLE gateways ADD COLUMN document TEXT NOT NULL DEFAULT '';

-- +goose Down

ALTER TABLE gateways DROP COLUMN document;
