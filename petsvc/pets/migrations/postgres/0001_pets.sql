-- +goose Up
CREATE TABLE pets (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        TEXT   NOT NULL,
    category_id BIGINT NOT NULL,
    status      TEXT   NOT NULL CHECK (status IN ('available', 'pending', 'sold'))
);

-- Pages of one status, by id.
CREATE INDEX pets_by_status ON pets (status, id);

-- +goose Down
DROP TABLE pets;
