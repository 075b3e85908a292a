package main

import (
	"strings"
	"testing"

	"petgate/shared/operate"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// Each wrong call gets an answer that names the problem and what to do instead, and changes
// nothing.
func TestWrongCalls(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.ok("tenant", "create", "little")
	s.ok("key", "create", "little", "--name", "dev")
	key := keyID(s, "little")
	before := s.events()
	newShell(t, "sqlite:/nowhere/at/all.db").want(exitUsage, "2 problems", "usage", "show", "acme", "--by", "month",
		"--since", "never")
	for _, c := range []struct {
		args string // KEY is a key's ID, '' an empty argument
		code exitCode
		want string
	}{
		{"", exitUsage, "expected one of \"migrate\""},
		{"key revoke --ye", exitUsage, `did you mean one of "--yes"`},
		{"tenant create acme --minute 1,000 --day 1.5 --plan Pro -o xml", exitUsage, "4 problems"},
		{"tenant set-quota little --clear --minute 1", exitUsage, "do not combine it with --minute, --day or --month"},
		{"key create little --wait -o xml", exitUsage, "--wait: it needs a value"},
		{"help", exitDone, ""},
		{"help key create", exitDone, ""},
		{"help tenants", exitUsage, `did you mean "tenant"?`},
		{"tenant", exitUsage, `expected one of "create"`},
		{"tenant lst", exitUsage, `unexpected argument lst, did you mean "list"?`},
		{"tenant list extra", exitUsage, "unexpected argument extra"},
		{"tenant create", exitUsage, `expected "<name>"`},
		{"tenant create foo --plan gold", exitFailed, `there is no plan "gold" (` + "`keyadmin plan list` shows all)"},
		{"tenant create little --plan free", exitFailed, `a tenant named "little"`},
		{"tenant show nosuch", exitFailed, `there is no tenant "nosuch"`},
		{"key create little --expires tomorrow", exitUsage, `"tomorrow" is neither a duration nor a date: use 1w, 90d`},
		{"key create little --expires 2020-01-01", exitUsage, "--expires: 2020-01-01T00:00:00Z is in the past"},
		{"key create little --expires=-5d", exitUsage, `--expires: "-5d" is negative`},
		{"key create little --scopes pets:admin", exitUsage, `unknown flag --scopes, did you mean "--scope"?`},
		{"key revoke ACME_LIVE_00000000", exitUsage, "it is not repeated here"},
		{
			"usage explain --operation listPets", exitUsage,
			"standard input has no token: keyadmin usage explain --operation listPets < FILE",
		},
		{"usage explain ''", exitUsage, "<key-or-tenant>: it is empty: give an ID or a name, or leave it out"},
		{"key update KEY --allow ''", exitUsage, "--allow is empty: --allow-any removes the allow-list"},
		{"key list --expiring 2020-01-01", exitUsage, "--expiring: 2020-01-01T00:00:00Z is in the past"},
		{"usage top --since 1d --until 1d", exitUsage, "is not later than since"},
		{"key update KEY", exitUsage, "give --name, --scope, --allow"},
		{"key update KEY --allow 10.0.0.0/8 --allow-any", exitUsage, "do not combine"},
		{"plan update nosuch --day 5", exitFailed, `there is no plan "nosuch"`},
		{"plan update free --day 5", exitUsage, "Lower plan free for its 1 tenant: 1,000 → 5 requests per day?"},
		{"tenant set-quota little", exitUsage, "give --minute, --day, --month or --month-starts, or --clear"},
		{"ban add KEY", exitUsage, "missing flags: --for=AGE, --reason=TEXT"},
		{"usage top --number 3", exitDone, ""},
		{"usage show little --by second", exitUsage, `"second" is not a group: use minute, hour, day, operation, key, outcome`},
		{"usage show little --by minute,key", exitUsage, "minute stands alone: by minute, only attempts are kept"},
		{"usage show little --by day,hour", exitUsage, "use only one of hour and day"},
		{"usage show little --by minute --plot", exitUsage, "--plot draws hours or days"},
		{"usage top --limit 0", exitUsage, "--limit: 0 is out of range: use 1 or more"},
		{"usage explain key_x", exitUsage, `"key_x" is not an ID: want key_ and 16 characters`},
		{"usage export --format csv --to http://127.0.0.1:1 --token-file nosuch", exitFailed, "read the receiver's token: open nosuch"},
		{"usage export --format csv --to ftp://x", exitUsage, `--to is "ftp://x": use http://… or https://…`},
		{"usage export --format csv --to https:x", exitUsage, "use http://… or https://…"},
		{"usage export --format csv --to https://u@x", exitUsage, "use http://… or https://…"},
		{"key update KEY --expires 1d --no-expires", exitUsage, "--no-expires removes the expiry: do not combine it with --expires"},
		{"tenant list -o jsn", exitUsage, `"jsn" is not a format: use table, json or csv`},
		{"gateway forget nosuch", exitFailed, `there is no gateway "nosuch"`},
		{"audit --tenant nosuch", exitFailed, `there is no tenant "nosuch"`},
		{"audit --limit=-1", exitUsage, "use 1 or more"},
		{"ban add KEY --for 1h --reason x --tell ''", exitUsage, "--tell: \"\" must not be empty"},
		{"ban add little --for 1h --reason x", exitUsage, `"little" is not an ID: want key_ and 16 characters`},
		{"key create little --wait soon", exitUsage, `--wait: "soon" is not a duration`},
		{"usage explain KEY --from nowhere", exitUsage, `"nowhere" is not an address: use 203.0.113.5`},
		{
			"gateway drop key_0000000000000000 -y", exitFailed,
			"there is no lost refusal \"key_0000000000000000\" (`keyadmin gateway lost` shows all)",
		},
		{"apply nosuch.yaml", exitFailed, "read the document: open nosuch.yaml"},
		{"apply wrong_calls_test.go", exitUsage, "wrong_calls_test.go is not YAML: line "},
		{"audit --actor", exitUsage, "--actor: it needs a value"},
		{"completion powershell", exitUsage, `"bash","zsh","fish"`},
		{"tenant list --database-url sqlite:x", exitUsage, "flags are seen in ps, so set DATABASE_URL or DATABASE_URL_FILE"},
		{"tenant list --database-url postgres://a:b@c/d", exitUsage, "it is not repeated here"},
		{"--verison", exitUsage, `unknown flag --verison, did you mean "--version"?`},
		{"--database-url-file nosuch tenant list", exitFailed, "read the database's URL: open nosuch"},
	} {
		var args []string
		for _, arg := range strings.Fields(c.args) {
			args = append(args, strings.NewReplacer("KEY", key, "''", "").Replace(arg))
		}
		s.want(c.code, c.want, args...)
	}
	must.Equal(t, s.events(), before, "events after wrong calls")
}

// Commands in messages call keyadmin by the path that the operator used, so that they work when
// they are pasted.
func TestCommandsAsCalled(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	s.program = "bin/keyadmin"
	s.want(exitDone, "Its first key: bin/keyadmin key create 'my tenant!'", "tenant", "create", "my tenant!")
	s.want(exitFailed, "(`bin/keyadmin tenant list` shows all)", "tenant", "show", "nosuch")
	s.want(exitUsage, `Run "bin/keyadmin tenant --help" for usage.`, "tenant", "lst")
	s.env[0] = "DATABASE_URL=sqlite:none.db"
	s.want(exitFailed, "`bin/keyadmin migrate` creates it", "tenant", "list")
	if found, _ := s.doctor(); !strings.Contains(found[0].Problem+found[0].Cure, "creates it. The path is relative") ||
		!strings.HasSuffix(found[0].Cure, "`bin/keyadmin migrate`") {
		t.Errorf("doctor finds %+v", found)
	}
	for _, want := range []string{
		"Usage: bin/keyadmin key create <tenant>",
		"    (umask 077; bin/keyadmin key create acme --name ci > ci.token)",
	} {
		if r := s.keyadmin("help", "key", "create"); !strings.Contains(r.stdout, want) {
			t.Errorf("help has no %q:\n%s", want, r.stdout)
		}
	}
	for text, want := range map[string]string{
		"acme": "acme", "a b": "'a b'", "it's": `'it'\''s'`,
		"$(reboot)": "'$(reboot)'", "": "''", "Zoë": "Zoë",
	} {
		must.Equal(t, operate.ShellWord(text), want, "the word of %q", text)
	}
}
