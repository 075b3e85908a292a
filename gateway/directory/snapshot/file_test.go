package snapshot

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

func open(t *testing.T) *File {
	t.Helper()
	f, err := Open(filepath.Join(t.TempDir(), "snapshot"), "gw-1", "a")
	must.Do(t, err)
	t.Cleanup(f.Close)
	return f
}

// ban is a change.
func ban(until instant.Millis) func(keystore.Rows) {
	return func(to keystore.Rows) { to.Ban(keystore.BanRow{Key: id.Key{1}, Until: until}) }
}

func replace(t *testing.T, f *File) {
	t.Helper()
	must.Do(t, f.Replace(Head{}, ban(1)))
}

func appendTo(t *testing.T, f *File, changes func(keystore.Rows)) {
	t.Helper()
	must.Do(t, f.Append(Head{}, changes))
}

// expect checks the last ban in the file; 0: there is no file.
func expect(t *testing.T, f *File, until instant.Millis) {
	t.Helper()
	var last instant.Millis
	ignored := appendRows(new([]byte), func() {})
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
	replace(t, f)
	expect(t, f, 1)
	appendTo(t, f, ban(2))
	expect(t, f, 2)
	// A file that lacks a change, because the change cannot be appended, is removed.
	if err := f.to.File.Close(); err != nil { // writes fail from now on
		t.Fatal(err)
	}
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
	replace(t, f)
	wants(false, "a new file")
	appendTo(t, f, ban(2))
	wants(false, "one change")
	appendTo(t, f, func(to keystore.Rows) {
		to.Ban(keystore.BanRow{Key: id.Key{1}, Notice: string(make([]byte, changedBytesMin))})
	})
	wants(true, "many changes")
}

// A file that the version before has written is read. Its records have no months, and no limits of keys.
func TestFileOfVersionBefore(t *testing.T) {
	t.Parallel()
	var got []any
	h, err := (&File{path: "testdata/form-6.snapshot", gateway: "gw-1"}).Read(keystore.Rows{
		Plan:   func(p keystore.Plan) { got = append(got, p) },
		Tenant: func(r *keystore.TenantRow) { got = append(got, *r) },
		Key:    func(k *keystore.KeyRow) { got = append(got, *k) },
		Ban:    func(b keystore.BanRow) { got = append(got, b) },
	})
	must.Do(t, err)
	want := []any{
		keystore.Plan{Name: "pro", Limits: plan.Limits{Minute: 300, Day: 10_000}},
		keystore.TenantRow{ID: id.Tenant{1}, Plan: "pro", Override: plan.Limits{Day: 20_000}, Suspended: true, UsedSince: 9},
		keystore.KeyRow{
			ID: id.Key{2}, Tenant: id.Tenant{1}, Name: "ci", ReplacedBy: id.Key{3},
			Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		},
		keystore.BanRow{Key: id.Key{2}, Until: 7, Automatic: true},
	}
	if !reflect.DeepEqual(got, want) || h.Gateways != 2 {
		t.Errorf("%+v\nwas read, want\n%+v", got, want)
	}
}
