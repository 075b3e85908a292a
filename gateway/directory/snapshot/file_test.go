package snapshot

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

func open(t *testing.T) *File {
	t.Helper()
	f := must.Get[*File](t)(Open(filepath.Join(t.TempDir(), "var", "snapshot"), "gw-1", "a"))
	t.Cleanup(f.Close)
	return f
}

// ban is a change.
func ban(until instant.Millis) func(keystore.Rows) {
	return func(to keystore.Rows) { to.Ban(keystore.BanRow{Key: id.Key{1}, Until: until}) }
}

// expect checks the last ban in the file; 0: there is no file.
func expect(t *testing.T, f *File, until instant.Millis) {
	t.Helper()
	var last instant.Millis
	ignored := new(coder).writeRows(func() {})
	ignored.Ban = func(b keystore.BanRow) { last = b.Until }
	if _, err := f.Read(ignored); err != nil && (until != 0 || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	if last != until {
		t.Errorf("the file has a ban until %d, want %d", last, until)
	}
}

func TestFileIsNeverBehind(t *testing.T) {
	t.Parallel()
	f := open(t)
	must.Do(t, f.Replace(Head{}, ban(1)))
	expect(t, f, 1)
	must.Do(t, f.Append(Head{}, ban(2)))
	expect(t, f, 2)
	// A file that lacks a change, because the change cannot be appended, is removed.
	must.Do(t, f.to.File.Close()) // writes fail from now on
	if err := f.Append(Head{}, ban(4)); err == nil {
		t.Error("a change was appended to a closed file")
	}
	expect(t, f, 0)
}

// After one change, the whole file is not written again.
func TestOutdated(t *testing.T) {
	t.Parallel()
	f := open(t)
	wants := func(want bool, after string) {
		t.Helper()
		if is := f.IsOutdated(); is != want {
			t.Errorf("after %s, a new file is wanted: %t", after, is)
		}
	}
	wants(false, "the start")
	must.Do(t, f.Remove())
	wants(true, "a removal")
	must.Do(t, f.Replace(Head{}, ban(1)))
	wants(false, "a new file")
	must.Do(t, f.Append(Head{}, ban(2)))
	wants(false, "one change")
	must.Do(t, f.Append(Head{}, func(to keystore.Rows) {
		to.Ban(keystore.BanRow{Key: id.Key{1}, Notice: string(make([]byte, changedBytesMin))})
	}))
	wants(true, "many changes")
	must.Do(t, f.Replace(Head{}, ban(1)))
	wants(false, "another new file")
}

// The file has all fields of the head and of each row, and a row has nothing of the row before.
func TestEveryFieldIsKept(t *testing.T) {
	t.Parallel()
	f := open(t)
	head := Head{Position: Position{Last: 1, UUID: "event"}, gateway: "gw-1", Seen: 2, Gateways: 3, MaxAge: 4}
	rows := func(to keystore.Rows) {
		to.Plan(
			keystore.Plan{Name: "gold", Limits: plan.Limits{Minute: 1, Day: 2, Month: 3}, Test: plan.Limits{Minute: 4}})
		to.Tenant(
			&keystore.TenantRow{
				ID:          id.Tenant{1},
				Plan:        "gold",
				Override:    plan.Limits{Day: 5},
				MonthStarts: 6,
				Suspended:   true,
				UsedSince:   7,
			},
		)
		to.Key(&keystore.KeyRow{
			Hash: apikey.Hash{1}, ID: id.Key{2}, Tenant: id.Tenant{3}, Environment: apikey.Test, Scopes: "pets:read",
			Allow: keystore.Prefixes{netip.MustParsePrefix("203.0.113.0/24")}, Name: "ci", ReplacedBy: id.Key{4},
			ExpiresAt: 5, RevokedAt: 6, DisabledAt: 7, GraceEndsAt: 8, Limits: plan.Limits{Minute: 9, Day: 10},
		})
		to.Key(&keystore.KeyRow{})
		to.Ban(keystore.BanRow{Key: id.Key{5}, Until: 6, Automatic: true, Notice: "unpaid"})
		to.Ban(keystore.BanRow{})
	}
	to := func(all *[]any) keystore.Rows {
		add := func(row any) { *all = append(*all, row) }
		return keystore.Rows{
			Plan: func(p keystore.Plan) { add(p) }, Tenant: func(t *keystore.TenantRow) { add(*t) },
			Key: func(k *keystore.KeyRow) { add(*k) }, Ban: func(b keystore.BanRow) { add(b) },
		}
	}
	var want, got []any
	rows(to(&want))
	must.Do(t, f.Replace(head, rows))
	if read, err := f.Read(to(&got)); err != nil || read != head || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\n%+v\nwant %+v\n%+v", read, err, got, head, want)
	}
}
