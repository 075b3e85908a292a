package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"petgate/shared/testkit/must"
)

// What the lock's file says about another boot, perhaps of another host, proves nothing.
func TestProcessesOfAnotherBootMayRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	must.Do(t, os.WriteFile(path, []byte("elsewhere@another-boot\nhere@"+bootID()+"\n"), 0o600))
	p, err := openProcesses(path, "this")
	if err != nil || !slices.Equal(p.ended, []string{"here"}) {
		t.Errorf("known to have ended: %v, %v", p.ended, err)
	}
	if _, err := openProcesses(path, "second"); !errors.Is(err, errLocked) {
		t.Errorf("a second process: %v", err)
	}
	p.close()
	again, err := openProcesses(path, "third")
	if err != nil || !slices.Equal(again.ended, []string{"here", "this"}) {
		t.Errorf("known to have ended: %v, %v", again.ended, err)
	}
	again.close()
}
