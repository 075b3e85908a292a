-- +goose Up

-- Takes the writers' lock, draws the next event's ID, adds the event and notifies the gateways: all that a writer has to do
-- under the lock, in one round trip. It is a function because each of its statements has a snapshot of its own: in a single
-- statement, MAX(id) would be read as it was before the lock was free.
-- +goose StatementBegin
CREATE FUNCTION append_event(
    lock BIGINT, channel TEXT, event_uuid TEXT, event_at BIGINT, event_actor TEXT, event_kind TEXT, event_tenant TEXT,
    event_key TEXT, event_plan TEXT, event_before TEXT, event_after TEXT
) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    event_id BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    PERFORM pg_notify(channel, '');
    INSERT INTO events (id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json)
        VALUES ((SELECT COALESCE(MAX(id), 0) + 1 FROM events), event_uuid, event_at, event_actor, event_kind, event_tenant,
            event_key, event_plan, event_before, event_after)
        RETURNING id INTO event_id;
    RETURN event_id;
END
$$;
-- +goose StatementEnd

-- +goose Down

DROP FUNCTION append_event;
