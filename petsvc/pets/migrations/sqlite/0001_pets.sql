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

-- +goose Down
DROP TABLE pets;
