-- Database roles with the rights that each program needs, and no others. A superuser runs this with psql in the database of the keys, after
-- `keyadmin migrate`, and in an upgrade again when the last gateway was replaced. Running it again changes nothing. psql variables:
-- gateway_password, petsvc_password, keyadmin_password.
--
--   gateway   reads what it serves. It writes only by functions: bans and lost refusals, which name it in the audit log, registrations
--             of gateways, usage, and the quotas of a gateway without Redis.
--   petsvc    owns the database pets. It cannot connect to the database of the keys, so it cannot hold the lock of those who change keys.
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

-- No role can use up PostgreSQL's 100 connections. These are enough for eight gateways, of which each needs six, and three pet services. For
-- more, raise max_connections and then these.
ALTER ROLE gateway CONNECTION LIMIT 50 PASSWORD :'gateway_password';
ALTER ROLE petsvc CONNECTION LIMIT 27 PASSWORD :'petsvc_password';
ALTER ROLE keyadmin CONNECTION LIMIT 15 PASSWORD :'keyadmin_password';

-- Before PostgreSQL 15, every role may create tables in the schema public.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO gateway, keyadmin;

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM keyadmin;
DO $$
BEGIN
	IF EXISTS (SELECT FROM gateways WHERE registered_at <
		(SELECT EXTRACT(EPOCH FROM CAST(MAX(tstamp) AS timestamptz)) * 1000 FROM keystore_schema WHERE version_id = 15)) THEN
		RAISE WARNING 'a gateway that started before the migration writes to tables: run this again when it was replaced';
	ELSE
		REVOKE ALL ON ALL TABLES IN SCHEMA public FROM gateway;
		REVOKE UPDATE (last_used_at) ON tenant_keys FROM gateway;
	END IF;
END $$;
GRANT SELECT ON keystore_schema, plans, tenants, tenant_keys, bans, events, lost_refusals, gateways, gateway_registry, usage_hours,
	usage_minutes, usage_gaps, quota_records, unreported_requests TO gateway, keyadmin;
GRANT SELECT ON usage_ledger, usage_exports, console_sessions, operators, operator_requests TO keyadmin;
GRANT INSERT ON events TO keyadmin;
GRANT INSERT, UPDATE, DELETE ON plans, tenants, tenant_keys, bans TO keyadmin;
GRANT INSERT, DELETE ON lost_refusals TO keyadmin;
GRANT UPDATE ON usage_ledger TO keyadmin;
GRANT INSERT, UPDATE, DELETE ON usage_exports, console_sessions TO keyadmin;
GRANT INSERT, DELETE ON operators, operator_requests TO keyadmin;

DO $$
DECLARE
	name regprocedure;
BEGIN
	FOR name IN SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'gateway\_%' LOOP
		EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO gateway, keyadmin', name);
	END LOOP;
END $$;
GRANT EXECUTE ON FUNCTION writers_lock TO gateway, keyadmin;

-- The pet service migrates its own tables, in a database of its own.
SELECT 'CREATE DATABASE pets OWNER petsvc' WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'pets') \gexec
REVOKE ALL ON DATABASE pets FROM PUBLIC;

-- An earlier version had the pets in this database: see CHANGELOG.md. Until they are moved, the pet service may connect to it.
ALTER ROLE petsvc RESET search_path;
DO $$
DECLARE
	name text;
BEGIN
	EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC, petsvc', current_database());
	EXECUTE format('GRANT CONNECT ON DATABASE %I TO gateway, keyadmin', current_database());
	EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO keyadmin', current_database());
	IF to_regclass('public.pets') IS NULL AND to_regclass('petsvc.pets') IS NULL THEN
		RETURN;
	END IF;
	CREATE SCHEMA IF NOT EXISTS petsvc AUTHORIZATION petsvc;
	FOREACH name IN ARRAY ARRAY['pets', 'pets_schema', 'pet_requests'] LOOP
		IF to_regclass('public.' || name) IS NOT NULL THEN
			EXECUTE format('ALTER TABLE public.%I SET SCHEMA petsvc', name);
			EXECUTE format('ALTER TABLE petsvc.%I OWNER TO petsvc', name);
		END IF;
	END LOOP;
	EXECUTE format('GRANT CONNECT ON DATABASE %I TO petsvc', current_database());
	EXECUTE format('ALTER ROLE petsvc IN DATABASE %I SET search_path = petsvc', current_database());
END $$;
