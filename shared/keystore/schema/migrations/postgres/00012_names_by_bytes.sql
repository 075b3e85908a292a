-- +goose Up

-- Both databases list tenants in the same order, and the index of the names finds those that begin with a text.
ALTER TABLE tenants ALTER COLUMN name TYPE TEXT COLLATE "C";

-- +goose Down

ALTER TABLE tenants ALTER COLUMN name TYPE TEXT COLLATE "default";
