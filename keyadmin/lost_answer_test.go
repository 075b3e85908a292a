package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// lostAnswers runs commands that change something in a shell whose database fails, and looks in the
// database at what they have done.
type lostAnswers struct {
	*shell
	store  *keystore.Store // does not fail
	tenant keystore.Tenant
	key    id.Key
}

var tokens = regexp.MustCompile(`ptg_live_\w+`)

// changing are commands that change something, each in another way: a new record, an edit, a record
// of its own, and two keys at once.
func (l *lostAnswers) changing() [][]string {
	tenant, key := l.tenant.Name, l.key.String()
	return [][]string{
		{"key", "create", tenant},
		{"tenant", "set-quota", tenant, "--minute", fmt.Sprint(100 + l.lastEvent())},
		{"ban", "add", key, "--for", "1h", "--reason", "scraping", "-y"},
		{"key", "rotate", key, "--grace", "0", "-y"},
	}
}

// fresh makes a tenant with a key.
func (l *lostAnswers) fresh() {
	l.t.Helper()
	var err error
	if l.tenant, _, err = l.store.CreateTenant(l.t.Context(),
		keystore.TenantSpec{Name: fmt.Sprint("tenant-", l.lastEvent()), Plan: "free"}); err != nil {
		l.t.Fatal(err)
	}
	key, _, _, err := l.store.CreateKey(l.t.Context(), keystore.KeySpec{Tenant: l.tenant.ID})
	must.Do(l.t, err)
	l.key = key.ID
}

func (l *lostAnswers) lastEvent() keystore.Change {
	l.t.Helper()
	return must.Get[keystore.Change](l.t)(l.store.LastEvent(l.t.Context()))
}

// judge checks what a command said against what it has done. It returns its exit code, and whether
// the change was made.
func (l *lostAnswers) judge(name string, r result, before keystore.Change) (exitCode, bool) {
	l.t.Helper()
	made, found := l.lastEvent() > before, tokens.FindAllString(r.stdout, -1)
	said := fmt.Sprintf("%s: exit %d, the change was made: %t\n%s%s", name, r.code, made, r.stdout, r.stderr)
	switch r.code {
	case exitDone:
		if !made || !strings.Contains(r.stderr, "no gateway is registered") {
			l.t.Error(said)
		}
	case exitFailed:
		if made || r.stdout != "" {
			l.t.Error(said)
		}
	case exitUnconfirmed:
		_, look, isUnknown := strings.Cut(r.stderr, "lists the change if it was made: keyadmin ")
		look, _, _ = strings.Cut(look, "\n")
		if !isUnknown && !made ||
			isUnknown && made != strings.Contains(l.keyadmin(strings.Fields(look)...).stdout, "keyadmin:anna") {
			l.t.Error(said)
		}
	default:
		l.t.Error(said)
	}
	wants := 0
	if isSecret := strings.HasPrefix(name, "key create") || strings.HasPrefix(name, "key rotate"); isSecret &&
		r.code != exitFailed {
		wants = 1
	}
	if len(found) != wants {
		l.t.Errorf("%d tokens, want %d: %s", len(found), wants, said)
	}
	for _, token := range found {
		_, err := l.store.KeyByToken(l.t.Context(), token)
		if (err == nil) != made || err != nil && !errors.Is(err, keystore.ErrNotFound) {
			l.t.Errorf("the token: %v: %s", err, said)
		}
	}
	return r.code, made
}

// However the connection to PostgreSQL breaks, what a command says about its change is true, and no
// token is lost or shown in vain.
func TestConnectionBreaksAnywhere(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	outcomes := map[string]int{}
	t.Run("commands", func(t *testing.T) {
		for command, name := range []string{"key create", "set-quota", "ban add", "key rotate"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				u := must.Get[*url.URL](t)(url.Parse(testkit.Postgres(t)))
				direct := newMigrated(t, u.String())
				proxy := testkit.NewProxy(t, u.Host)
				u.Host = proxy.Addr
				l := &lostAnswers{shell: newShell(t, u.String()), store: direct.store()}
				l.now = direct.now
				for _, mode := range []testkit.Cut{
					{},
					{Delivered: true},
					{ForEver: true},
					{Delivered: true, ForEver: true},
				} {
					for k := 1; ; k++ {
						l.fresh()
						args, before := l.changing()[command], l.lastEvent()
						if mode.ForEver {
							args = append(args, "--wait", "0")
						}
						mode.Trip = proxy.RoundTrips() + k
						proxy.CutAt(mode)
						r := l.run(args)
						isCut := proxy.IsCut()
						proxy.CutAt(testkit.Cut{})
						proxy.Restore(t)
						code, made := l.judge(quoted(args), r, before)
						if !mode.ForEver && code == exitUnconfirmed {
							t.Errorf("%s: the database can be asked, but the outcome is unknown:\n%s", quoted(args),
								r.stderr)
						}
						if !isCut {
							break
						}
						mu.Lock()
						outcomes[fmt.Sprintf("exit %d, made %t", code, made)]++
						mu.Unlock()
					}
				}
			})
		}
	})
	t.Logf("figure: commands whose connection broke at each message in turn: %v", outcomes)
	for _, outcome := range []string{
		"exit 0, made true", "exit 1, made false", "exit 3, made true",
		"exit 3, made false",
	} {
		if outcomes[outcome] < 4 {
			t.Errorf("%s: %d times", outcome, outcomes[outcome])
		}
	}
}

// If a commit fails, the command has failed, and there is no token.
func TestCommitFails(t *testing.T) {
	t.Parallel()
	s := newMigrated(t, testkit.SQLite(t))
	l := &lostAnswers{shell: s, store: s.store()}
	l.fresh()
	for _, statement := range []string{
		`CREATE TABLE refused (id INTEGER PRIMARY KEY, missing INTEGER REFERENCES refused (id) DEFERRABLE INITIALLY DEFERRED)`,
		`CREATE TRIGGER refuse AFTER INSERT ON events BEGIN INSERT INTO refused (missing) VALUES (-1); END`,
	} {
		must.Get[sql.Result](t)(s.open().Exec(statement))
	}
	for _, args := range l.changing() {
		before := l.lastEvent()
		code, _ := l.judge(quoted(args), l.run(args), before)
		must.Equal(t, code, exitFailed, "exit of %s", quoted(args))
	}
}
