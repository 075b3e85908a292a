-- +goose Up

-- For lists that are read page by page.
CREATE INDEX bans_by_end ON bans (until, key_id) WHERE lifted_at = 0;
CREATE INDEX events_of_tenant ON events (tenant_id, id);
CREATE INDEX events_of_key ON events (key_id, id);

-- With the ID, the index alone says where the events after an instant begin.
DROP INDEX events_by_time;
CREATE INDEX events_by_time ON events (at, id);

-- +goose Down

DROP INDEX events_by_time;
CREATE INDEX events_by_time ON events (at);
DROP INDEX events_of_key;
DROP INDEX events_of_tenant;
DROP INDEX bans_by_end;
