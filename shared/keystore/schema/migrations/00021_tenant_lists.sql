-- +goose Up

-- Lists of tenants: the newest first, and how many each plan has.
CREATE INDEX tenants_by_age ON tenants (created_at, id);
CREATE INDEX tenants_of_plan ON tenants (plan);

-- +goose Down

DROP INDEX tenants_of_plan;
DROP INDEX tenants_by_age;
