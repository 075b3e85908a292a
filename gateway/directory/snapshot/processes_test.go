package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

// What the lock's file says about another boot, perhaps of another host, proves nothing.
func TestProcessesOfAnotherBootMayRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	text := strings.Repeat("old@"+bootID()+"\n", processesMax) + "elsewhere@another-boot\nhere@" + bootID() + "\n"
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	p, err := openProcesses(path, "this")
	if err != nil || !slices.Equal(p.ended, append(slices.Repeat([]string{"old"}, processesMax-3), "here")) {
		t.Errorf("known to have ended: %v, %v", p.ended, err)
	}
	if _, err := openProcesses(path, "second"); !errors.Is(err, errLocked) {
		t.Errorf("a second process: %v", err)
	}
	p.close()
	again, err := openProcesses(path, "third")
	if err != nil ||
		!slices.Equal(again.ended, append(slices.Repeat([]string{"old"}, processesMax-4), "here", "this")) {
		t.Errorf("known to have ended: %v, %v", again.ended, err)
	}
	again.close()
}
