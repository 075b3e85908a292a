package snapshot

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"petgate/shared/testkit/must"
)

// A process may be killed while it adds itself to the list, so the earlier processes are in the list at every instant.
func TestProcessesAreAlwaysListed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	var started atomic.Int64
	working := make(chan error, 1)
	go func() {
		for range processesMax - 1 {
			p, err := openProcesses(path, rand.Text())
			if err != nil {
				working <- err
				return
			}
			started.Add(1)
			p.close()
		}
		working <- nil
	}()
	for {
		earlier := started.Load()
		text, err := os.ReadFile(path)
		if listed := int64(strings.Count(string(text), "\n")); listed < earlier {
			t.Fatalf("%d of %d earlier processes are listed, %v", listed, earlier, err)
		}
		select {
		case err := <-working:
			must.Do(t, err)
			return
		default:
		}
	}
}

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
