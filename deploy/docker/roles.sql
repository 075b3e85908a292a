-- Database roles with the rights that each program needs, and no others. A superuser runs this with
-- psql in the database of the keys, after `keyadmin migrate`. Running it again changes nothing. psql
-- variables: gateway_password, petsvc_password, keyadmin_password.
--
--   gateway   reads what it serves. It writes only by functions: bans and lost refusals, which name it
--             in the audit log, registrations of gateways, usage, and the quotas of a gateway without
--             Redis.
--   petsvc    owns the database pets. It cannot connect to the database of the keys, so it cannot hold
--             the lock of those who change keys.
--   keyadmin  changes tenants, plans, keys and bans. The schema is changed by the superuser, who runs
--             `keyadmin migrate`.

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

-- No role can use up PostgreSQL's 100 connections. These are enough for eight gateways, of which each
-- needs six, and three pet services. For more, raise max_connections and then these.
ALTER ROLE gateway CONNECTION LIMIT 50 PASSWORD :'gateway_password';
ALTER ROLE petsvc CONNECTION LIMIT 27 PASSWORD :'petsvc_password';
ALTER ROLE keyadmin CONNECTION LIMIT 15 PASSWORD :'keyadmin_password';

-- Before PostgreSQL 15, every role may create tables in the schema public.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO gateway, keyadmin;

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM gateway, keyadmin;
GRANT SELECT ON keys_schema, plans, tenants, tenant_keys, bans, events, lost_refusals, gateways, gateway_registry,
	usage_hours, usage_minutes, usage_gaps, quota_records, unreported_requests TO gateway, keyadmin;
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

DO $$
BEGIN
	EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC, petsvc', current_database());
	EXECUTE format('GRANT CONNECT ON DATABASE %I TO gateway, keyadmin', current_database());
	EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO keyadmin', current_database());
END $$;
