package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"petgate/shared/durable"
	"petgate/shared/testkit/must"
)

// files returns the names and contents in dir.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	for _, name := range must.Get[[]os.DirEntry](t)(os.ReadDir(dir)) {
		all = append(all, name.Name()+" "+string(must.Get[[]byte](t)(os.ReadFile(filepath.Join(dir, name.Name())))))
	}
	return all
}

func TestWriteAndRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "with the first file")
	path := filepath.Join(dir, "a")
	f := func(err error, want ...string) {
		t.Helper()
		must.Do(t, err)
		if got := files(t, dir); !slices.Equal(got, want) {
			t.Fatalf("there is %q, want %q", got, want)
		}
	}
	f(durable.Write(path, []byte("one")), "a one")
	must.Equal(t, must.Get[os.FileInfo](t)(os.Stat(path)).Mode().Perm(), 0o600, "the file's mode")
	f(os.WriteFile(path+".new", []byte("unfinished, and longer than the next"), 0o600), "a one",
		"a.new unfinished, and longer than the next")
	f(durable.Write(path, []byte("two")), "a two")
	f(durable.Remove(path))
	f(durable.Remove(path))                                        // again
	must.Do(t, durable.Remove(filepath.Join(dir, "missing", "a"))) // its directory does not exist
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	publish := func(text string) error {
		file := must.Get[*os.File](t)(durable.Create(path))
		defer file.Close()
		must.Get[int](t)(file.WriteString(text))
		return durable.Publish(file, path)
	}
	must.Do(t, publish("one"))
	if err := publish("two"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v, want an error that wraps fs.ErrExist", err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"a one"}) {
		t.Errorf("there is %q, want the first file alone", got)
	}
}

func TestWriteThatFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	must.Do(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o755))
	if err := durable.Write(path, []byte("one")); err == nil {
		t.Error("a directory that is not empty was replaced")
	}
	if _, err := os.Lstat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished file: %v, want that it is gone", err)
	}
}
