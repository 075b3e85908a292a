package schema

import (
	"fmt"
	"strings"
)

// The role of gateways has no right to write to tables. What it writes, it writes by functions that
// run with the rights of the tables' owner. So a gateway in wrong hands cannot change keys or the
// past, nor write in another name. Migrate replaces the functions by those of its program, so a
// change of a statement needs no migration. Two neighbouring versions share the functions: a change
// of parameters or of the result needs a new name.

// function is a function that has the text of a statement.
type function struct {
	name       string
	parameters string // types, separated by ", "
	result     string // rows for setOfChanged: one for each row that was changed
	statement  string
}

const setOfChanged = "SETOF INTEGER"

var functions = []function{
	{"gateway_grow_generation", "BIGINT", "SETOF BIGINT", GrowGeneration},
	{"gateway_register", "TEXT, TEXT, BIGINT, TEXT, BIGINT, BIGINT", "VOID", Register},
	{
		"gateway_heartbeat", "TEXT, TEXT, BIGINT, BIGINT, TEXT, BIGINT",
		"TABLE (generation BIGINT, now BIGINT)", Heartbeat,
	},
	{"gateway_describe", "TEXT, TEXT, TEXT", "VOID", DescribeGateway},
	{"gateway_delete_process", "TEXT, TEXT", setOfChanged, DeleteProcess},
	{"gateway_delete_silent", "TEXT, TEXT, BIGINT, BIGINT", setOfChanged, DeleteSilent},
	{"gateway_leave_unreported", "TEXT, TEXT", "VOID", LeaveUnreported},
	{"gateway_take_unreported", "", "SETOF TEXT", TakeUnreported},
	{"gateway_claim_usage", "TEXT, TEXT, BIGINT", setOfChanged, ClaimUsage},
	{"gateway_add_usage", "TEXT", "VOID", AddUsage},
	{"gateway_add_minutes", "TEXT, TEXT", "VOID", AddMinutes},
	{"gateway_touch_keys", "TEXT", "VOID", TouchKeys},
	{"gateway_prune_usage", "TEXT, BIGINT", "VOID", PruneUsage},
	{"gateway_prune_minutes", "TEXT, BIGINT", "VOID", PruneMinutes},
	{"gateway_note_gap", "TEXT, TEXT, TEXT", "VOID", NoteGap},
	{"gateway_note_dropped", "TEXT, TEXT, TEXT, TEXT", setOfChanged, NoteDropped},
	{"gateway_close_gap", "TEXT, TEXT", "VOID", CloseGap},
	{"gateway_prune_gaps", "BIGINT", "VOID", PruneGaps},
	{"gateway_upsert_quotas", "TEXT, BIGINT", "VOID", UpsertQuotas},
	{"gateway_prune_quotas", "BIGINT", "VOID", PruneQuotas},
}

// create returns the statement that creates the function.
func (f function) create() string {
	body := partsPostgres.Replace(f.statement)
	if f.result == setOfChanged {
		body += " RETURNING 1"
	}
	return fmt.Sprintf("CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE sql AS $$\n\t%s\n$$",
		f.name, f.parameters, f.result, body)
}

// call returns the statement that calls the function with the parameters of its statement.
func (f function) call() string {
	var arguments []string
	for i := range strings.Count(f.parameters, "TEXT") + strings.Count(f.parameters, "BIGINT") {
		arguments = append(arguments, fmt.Sprint("$", i+1))
	}
	return fmt.Sprintf("SELECT * FROM %s(%s)", f.name, strings.Join(arguments, ", "))
}

// calls has the calls of functions by their statements.
var calls = func() map[string]string {
	all := map[string]string{}
	for _, f := range functions {
		all[f.statement] = f.call()
	}
	return all
}()

// createFunctions are the statements that create all functions.
func createFunctions() []string {
	all := []string{appendEvent, actorOf, banJSON, gatewayBan, gatewayReportLost, writersLock}
	for _, f := range functions {
		all = append(all, f.create())
	}
	return append(all, closeFunctions)
}

// with returns a statement with names of variables in place of its parameters.
func with(query string, names ...string) string {
	var pairs []string
	for i, name := range names {
		pairs = append(pairs, fmt.Sprint("$", i+1), name)
	}
	return strings.NewReplacer(pairs...).Replace(query)
}

// Takes the writers' lock, draws the next event's ID, adds the event and notifies the gateways.
// Each statement of a function has a snapshot of its own. In a single statement, MAX(id) would be
// read as it was before the lock was free.
const appendEvent = `CREATE OR REPLACE FUNCTION append_event(
	lock BIGINT, channel TEXT, event_uuid TEXT, event_at BIGINT, event_actor TEXT, event_kind TEXT, event_tenant TEXT,
	event_key TEXT, event_plan TEXT, event_before TEXT, event_after TEXT
) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
	event_id BIGINT;
BEGIN
	PERFORM pg_advisory_xact_lock(lock);
	PERFORM pg_notify(channel, '');
	INSERT INTO events (id, uuid, at, actor, kind, tenant_id, key_id, plan, before_json, after_json)
		VALUES ((SELECT COALESCE(MAX(id), 0) + 1 FROM events), event_uuid, event_at, event_actor, event_kind,
			event_tenant, event_key, event_plan, event_before, event_after)
		RETURNING id INTO event_id;
	RETURN event_id;
END
$$`

// The name of a gateway as an actor: with the role in front, unless it is the role that owns the
// tables.
const actorOf = `CREATE OR REPLACE FUNCTION actor_of(gateway TEXT) RETURNS TEXT LANGUAGE sql AS $$
	SELECT CASE WHEN session_user = current_user THEN gateway ELSE session_user || ':' || gateway END
$$`

// A ban as an event has it.
const banJSON = `CREATE OR REPLACE FUNCTION ban_json(b bans) RETURNS TEXT LANGUAGE sql AS $$
	SELECT CAST(jsonb_strip_nulls(jsonb_build_object('keyId', b.key_id,
		'tenantId', (SELECT tenant_id FROM tenant_keys WHERE id = b.key_id), 'until', b.until, 'automatic', b.automatic,
		'notice', NULLIF(b.notice, ''), 'reason', b.reason, 'by', b.imposed_by, 'imposedAt', b.imposed_at)) AS TEXT)
$$`

// An automatic ban with its event, whose ID it returns. NULL: nothing has changed.
var gatewayBan = `CREATE OR REPLACE FUNCTION gateway_ban(
	gateway TEXT, event_uuid TEXT, ban_key TEXT, ban_until BIGINT, ban_reason TEXT, ban_at BIGINT
) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
	who    TEXT := actor_of(gateway);
	now    BIGINT := CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT);
	was    bans;
	before TEXT := '';
BEGIN
	PERFORM pg_advisory_xact_lock(123581046915073);
	SELECT * INTO was FROM bans WHERE key_id = ban_key;
	IF was.lifted_at = 0 AND was.until > now THEN
		before := ban_json(was);
	END IF;
	` + with(UpsertBan, "ban_key", "ban_until", "true", "''", "ban_reason", "who", "ban_at") + `
		RETURNING * INTO was;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	RETURN append_event(123581046915073, 'petgate_events', event_uuid, now, who, 'ban.added',
		(SELECT tenant_id FROM tenant_keys WHERE id = ban_key), ban_key, '', before, ban_json(was));
END
$$`

// A refusal that the database has lost, with its event, whose ID it returns. NULL: it is listed
// already.
var gatewayReportLost = `CREATE OR REPLACE FUNCTION gateway_report_lost(
	gateway TEXT, event_uuid TEXT, lost_tenant TEXT, lost_key TEXT, lost_kind TEXT, lost_at BIGINT, found_at BIGINT
) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
	who TEXT := actor_of(gateway);
BEGIN
	` + with(InsertLost, "lost_tenant", "lost_key", "lost_kind", "lost_at", "who", "found_at") + `;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	RETURN append_event(123581046915073, 'petgate_events', event_uuid, found_at, who, 'refusal.lost', lost_tenant,
		lost_key, '', '', CAST(jsonb_strip_nulls(jsonb_build_object('kind', lost_kind, 'tenantId', lost_tenant,
			'keyId', NULLIF(lost_key, ''), 'at', NULLIF(lost_at, 0))) AS TEXT));
END
$$`

// Who holds the writers' lock, and for how many ms at least (-1: unknown). A role does not see what
// other roles' sessions do, so this needs the owner's rights too.
const writersLock = `CREATE OR REPLACE FUNCTION writers_lock()
RETURNS TABLE (pid INTEGER, role TEXT, application TEXT, address TEXT, age BIGINT) LANGUAGE sql AS $$
	SELECT a.pid, COALESCE(a.usename, ''), COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''),
		COALESCE(CAST(EXTRACT(EPOCH FROM clock_timestamp() - COALESCE(a.xact_start, a.state_change)) * 1000
			AS BIGINT), -1)
	FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND a.pid <> pg_backend_pid()
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (CAST(l.classid AS BIGINT) << 32) + CAST(l.objid AS BIGINT) = 123581046915073
$$`

// The functions run with the owner's rights, on these tables and not on temporary ones of the same
// names. A replaced function keeps its owner and who may call it. Those who may register may call a
// new function too.
const closeFunctions = `DO $$
DECLARE
	name    REGPROCEDURE;
	grantee TEXT;
BEGIN
	FOR name IN SELECT CAST(oid AS REGPROCEDURE) FROM pg_proc
		WHERE pronamespace = CAST(current_schema() AS REGNAMESPACE)
			AND (proname LIKE 'gateway\_%' OR proname = 'writers_lock')
	LOOP
		EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = %I, pg_temp', name, current_schema());
		EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', name);
		FOR grantee IN SELECT g.grantee FROM information_schema.role_routine_grants AS g
			WHERE routine_schema = current_schema() AND routine_name = 'gateway_register'
				AND g.grantee NOT IN (current_user, 'PUBLIC')
		LOOP
			EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', name, grantee);
		END LOOP;
	END LOOP;
END
$$`
