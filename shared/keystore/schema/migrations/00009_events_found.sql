-- +goose Up

-- For pages of the events of one kind, and of those that one actor made.
CREATE INDEX events_of_kind ON events (kind, id);
CREATE INDEX events_of_actor ON events (actor, id);

-- +goose Down

DROP INDEX events_of_actor;
DROP INDEX events_of_kind;
