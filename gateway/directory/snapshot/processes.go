package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// processes lists the earlier processes of this gateway on this host, in a file next to the
// snapshot. The file is locked while this process runs. The system releases the lock when a process
// ends, so the holder knows that the earlier processes have ended, and changes do not wait for
// them. If the volume was moved to another host, the lock proves nothing, so each process is listed
// with the boot ID of its host.
type processes struct {
	file  *os.File // nil: there is no file, or another process has locked it
	ended []string // incarnations of processes that have ended
}

const processesMax = 100 // remembered

// errLocked means that another process has locked the file.
var errLocked = errors.New("another process uses this snapshot: give each gateway its own GATEWAY_SNAPSHOT")

// openProcesses locks the file and adds this process to it.
func openProcesses(path, incarnation string) (p processes, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return p, fmt.Errorf("snapshot: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return p, fmt.Errorf("snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return p, fmt.Errorf("snapshot: lock %s: %w", path, err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return p, fmt.Errorf("snapshot: %w", err)
	}
	boot := bootID()
	lines := strings.Fields(string(text))
	lines = lines[max(0, len(lines)-processesMax+1):]
	for _, line := range lines {
		if earlier, on, _ := strings.Cut(line, "@"); boot != "" && on == boot {
			p.ended = append(p.ended, earlier)
		}
	}
	lines = append(lines, incarnation+"@"+boot)
	updated := strings.Join(lines, "\n") + "\n"
	// The file is shortened last: this process may be killed at any instant, and the earlier ones
	// must still be listed then.
	if _, err := file.WriteAt([]byte(updated), 0); err != nil {
		return p, fmt.Errorf("snapshot: %w", err)
	}
	if err := file.Truncate(int64(len(updated))); err != nil {
		return p, fmt.Errorf("snapshot: %w", err)
	}
	p.file = file
	return p, nil
}

// bootID returns the ID of the host's current boot, which all its containers share. Empty: it is
// not known, so no earlier process is known to have ended.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil { // as on macOS
		text, _ = exec.Command("sysctl", "-n", "kern.bootsessionuuid").Output()
	}
	return strings.TrimSpace(string(text))
}

// close releases the lock. The file stays.
func (p *processes) close() {
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}
