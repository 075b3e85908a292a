-- +goose Up

-- Gateways that run the program before this version write bans without these columns.
ALTER TABLE bans ADD COLUMN automatic BOOLEAN NOT NULL DEFAULT true; -- imposed by a gateway, not by an operator
ALTER TABLE bans ADD COLUMN notice TEXT NOT NULL DEFAULT '';         -- the operator's words for the tenant

UPDATE bans SET automatic = false WHERE imposed_by LIKE 'keyadmin:%';

-- +goose Down

ALTER TABLE bans DROP COLUMN notice;
ALTER TABLE bans DROP COLUMN automatic;
