
-- Both databases list tenants in the same order. The index of the names finds those that begin with
-- a text.
ALTER TABLE tenants ALTER COLUMN name TYPE TEXT COLLATE "C";

-- What no program can read is refused: the role of gateways must not be able to stop the others.
ALTER TABLE events
    ADD CONSTRAINT events_id CHECK (id BETWEEN 1 AND 9007199254740991), -- exact as a number of JSON
    ADD CONSTRAINT events_form CHECK (actor ~ '^[^[:cntrl:]]+$' AND kind ~ '^[a-z.-]+$'
        AND tenant_id ~ '^(ten_[0-9abcdefghjkmnpqrstvwxyz]{16})?$'
        AND key_id ~ '^(key_[0-9abcdefghjkmnpqrstvwxyz]{16})?$');
ALTER TABLE tenant_keys
    ADD CONSTRAINT tenant_keys_environment CHECK (environment IN ('live', 'test'));
ALTER TABLE lost_refusals
    ADD CONSTRAINT lost_refusals_form CHECK (kind IN ('revoked', 'disabled', 'rotated', 'suspended')
        AND tenant_id ~ '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}$'
        AND key_id ~ '^(key_[0-9abcdefghjkmnpqrstvwxyz]{16})?$');
ALTER TABLE usage_hours
    ADD CONSTRAINT usage_hours_units CHECK (more_units >= 0),
    ADD CONSTRAINT usage_hours_form CHECK (requests >= 0
        AND tenant_id ~ '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}$'
        AND key_id ~ '^(key_[0-9abcdefghjkmnpqrstvwxyz]{16})?$');
ALTER TABLE usage_minutes
    ADD CONSTRAINT usage_minutes_form CHECK (attempts ~ '^([@-{][0-9]+)*$');
ALTER TABLE quota_records
    ADD CONSTRAINT quota_records_form CHECK (tenant_id ~
        '^ten_[0-9abcdefghjkmnpqrstvwxyz]{16}(:test)?(:key_[0-9abcdefghjkmnpqrstvwxyz]{16})?(:[0-9]+)?$');
