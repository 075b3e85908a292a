package snapshot

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

func open(t *testing.T) *File {
	t.Helper()
	f := must.Get[*File](t)(Open(filepath.Join(t.TempDir(), "snapshot"), "gw-1", "a"))
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
	must.Do(t, f.Replace(Head{}, ban(1)))
	wants(false, "a new file")
	must.Do(t, f.Append(Head{}, ban(2)))
	wants(false, "one change")
	must.Do(t, f.Append(Head{}, func(to keystore.Rows) {
		to.Ban(keystore.BanRow{Key: id.Key{1}, Notice: string(make([]byte, changedBytesMin))})
	}))
	wants(true, "many changes")
}
