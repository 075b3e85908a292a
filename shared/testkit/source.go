package testkit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"petgate/shared/testkit/must"
)

// CopySource copies the sources of the module to a new directory, as in an archive: without git,
// what was built, and data.
func CopySource(t testing.TB, module, to string) {
	t.Helper()
	entries, err := os.ReadDir(module)
	for _, entry := range entries {
		from, copied := filepath.Join(module, entry.Name()), filepath.Join(to, entry.Name())
		switch {
		case err != nil || slices.Contains([]string{".git", "bin", "dist", "var"}, entry.Name()):
		case entry.IsDir():
			err = os.CopyFS(copied, os.DirFS(from))
		default:
			var text []byte
			if text, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(copied, text, 0o644)
			}
		}
	}
	must.Do(t, err)
}
