//go:build e2e && linux

package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

// exposureMax is the highest score of `systemd-analyze security` that passes. 10 is no protection
// at all.
const exposureMax = 1.5

func analyze(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("no systemd-analyze on this machine: run TEST_PROGRAMS=systemd deploy/services.sh, which installs it")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestUnits verifies the units, with a program of the test in the place of the installed one.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) != 3 {
		t.Fatalf("units: %v, %v", units, err)
	}
	for _, unit := range units {
		text := must.Get[[]byte](t)(os.ReadFile(unit))
		name := strings.TrimSuffix(unit, ".service")
		dir := t.TempDir()
		program, starter := strings.TrimPrefix(name, "petgate-"), name+".socket"
		if name == "petgate-backup" {
			program, starter = "keyadmin", name+".timer"
		}
		if !strings.Contains(string(text), "/usr/local/bin/"+program) {
			t.Errorf("%s does not start /usr/local/bin/%s", unit, program)
		}
		// With RemoveIPC, systemd removes what all processes of the unit's user have: Postgres
		// ends.
		if strings.Contains(string(text), "\nUser=") && strings.Contains(string(text), "\nRemoveIPC=yes") {
			t.Errorf("%s removes what other processes of its user have", unit)
		}
		changed := strings.ReplaceAll(string(text), "/usr/local/bin/"+program, "/bin/true")
		started := must.Get[[]byte](t)(os.ReadFile(starter))
		for path, content := range map[string]string{unit: changed, starter: string(started)} {
			must.Do(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644))
		}
		for _, path := range []string{unit, starter} {
			if said := analyze(t, "verify", filepath.Join(dir, path)); said != "" {
				t.Errorf("%s: %s", path, said)
			}
		}
		said := analyze(t, "security", "--offline=true", "--no-pager", filepath.Join(dir, unit))
		match := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(said)
		if match == nil {
			t.Fatalf("%s has no score:\n%s", unit, said)
		}
		score, err := strconv.ParseFloat(match[1], 64)
		if err != nil || score > exposureMax {
			t.Errorf("%s: exposure %v (%v), want at most %v\n%s", unit, score, err, exposureMax, said)
		}
		t.Logf("figure: systemd-analyze security of %s: exposure %v of 10", unit, score)
	}
}
