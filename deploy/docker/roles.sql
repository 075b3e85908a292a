-- Database roles with the rights that each program needs, and no others. A superuser runs this after `keyadmin migrate`, after
-- every upgrade; running it again changes nothing. psql variables: gateway_password, petsvc_password, keyadmin_password.
--
--   gateway   reads all key tables, and cannot create or change tenants, plans and keys. It writes bans with their events,
--             registrations of gateways, statistics, and the quotas of a gateway without Redis.
--   petsvc    owns the schema petsvc with its tables, and sees nothing else.
--   keyadmin  changes tenants, plans, keys and bans. The schema is changed by the superuser, who runs `keyadmin migrate`.

DO $$
DECLARE
	program text;
BEGIN
	FOREACH program IN ARRAY ARRAY['gateway', 'petsvc', 'keyadmin'] LOOP
		IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = program) THEN
			EXECUTE format('CREATE ROLE %I LOGIN', program);
		END IF;
	END LOOP;
END $$;

ALTER ROLE gateway PASSWORD :'gateway_password';
ALTER ROLE petsvc PASSWORD :'petsvc_password';
ALTER ROLE keyadmin PASSWORD :'keyadmin_password';

-- Before PostgreSQL 15, every role may create tables in the schema public.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO gateway, keyadmin;

GRANT SELECT ON ALL TABLES IN SCHEMA public TO gateway, keyadmin;
GRANT INSERT ON events TO gateway, keyadmin;
GRANT INSERT, UPDATE ON bans TO gateway, keyadmin;
GRANT INSERT ON lost_refusals TO gateway;
GRANT INSERT, DELETE ON lost_refusals TO keyadmin;
GRANT INSERT, DELETE ON unreported_requests TO gateway;
GRANT INSERT, UPDATE, DELETE ON gateways, gateway_registry, usage_hours, usage_minutes, usage_gaps, quota_records
	TO gateway, keyadmin;
GRANT UPDATE ON usage_ledger TO keyadmin;
GRANT INSERT, UPDATE, DELETE ON usage_exports, console_sessions TO keyadmin;
GRANT UPDATE (last_used_at) ON tenant_keys TO gateway;
GRANT INSERT, UPDATE ON plans, tenants, tenant_keys TO keyadmin;

-- The pet service migrates its own tables. Tables that an earlier version created in the schema
-- public are moved here with their rows.
CREATE SCHEMA IF NOT EXISTS petsvc AUTHORIZATION petsvc;
ALTER ROLE petsvc SET search_path = petsvc;
DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY ARRAY['pets', 'pets_schema', 'pet_requests'] LOOP
		IF to_regclass('public.' || name) IS NOT NULL THEN
			EXECUTE format('ALTER TABLE public.%I SET SCHEMA petsvc', name);
			EXECUTE format('ALTER TABLE petsvc.%I OWNER TO petsvc', name);
		END IF;
	END LOOP;
END $$;
