-- +goose Up

-- For those who call deprecated operations.
CREATE INDEX usage_hours_of_operation ON usage_hours (operation, hour);

-- +goose Down

DROP INDEX usage_hours_of_operation;
