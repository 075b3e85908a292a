//go:build e2e

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "COMMIT=v"+service.Release, "SOURCE_DATE_EPOCH=1700000000")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return string(out)
}

// TestDist builds the release of this machine's system in two directories, with different settings
// of the go command, and looks at the result.
func TestDist(t *testing.T) {
	system := runtime.GOOS + "/" + runtime.GOARCH
	var sums []string
	var dir string
	for _, name := range []string{"a", "another directory"} {
		dir = filepath.Join(t.TempDir(), name)
		must.Do(t, os.Mkdir(dir, 0o755))
		if testkit.CopySource(t, "../..", dir); len(sums) > 0 {
			t.Setenv("GOFLAGS", "-tags=another")
		}
		output(t, dir, "go", "run", "-buildvcs=false", "./deploy/dist", "--targets", system)
		sums = append(sums, string(must.Get[[]byte](t)(os.ReadFile(filepath.Join(dir, "dist", "SHA256SUMS")))))
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 2 {
		t.Errorf("two directories give the sums\n%s\nand\n%s", sums[0], sums[1])
	}
	dist, name := filepath.Join(dir, "dist"), "petgate-"+service.Release+"-"+runtime.GOOS+"-"+runtime.GOARCH
	for line := range strings.Lines(sums[0]) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		text := must.Get[[]byte](t)(os.ReadFile(filepath.Join(dist, file)))
		must.Equal(t, fmt.Sprintf("%x", sha256.Sum256(text)), sum, "the sum of %s", file)
	}

	output(t, dist, "tar", "xzf", name+".tar.gz")
	unpacked := filepath.Join(dist, name)
	var d bill
	text, err := os.ReadFile(filepath.Join(dist, name+".spdx.json"))
	must.Do(t, err)
	if err := json.Unmarshal(text, &d); err != nil || d.Creation.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("the bill was created %s: %v", d.Creation.Created, err)
	}
	listed := ""
	for _, program := range programs {
		path := filepath.Join(unpacked, "bin", program)
		must.Equal(t, output(t, dist, path, "--version"), program+" "+service.Release+"\n", "%s --version says", program)
		listed += output(t, dist, "go", "version", "-m", path)
	}
	checkModules(t, d, filepath.Join(unpacked, noticesIn), listed)
	for _, completion := range completions {
		if info, err := os.Stat(filepath.Join(unpacked, completion)); err != nil || info.Size() == 0 {
			t.Errorf("no completion: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(unpacked, "lib/systemd/system/petgate-gateway.service")); (err == nil) != (runtime.GOOS == "linux") {
		t.Errorf("a unit of systemd: %v", err)
	}
	link, links := regexp.MustCompile(`\]\(([^:)#]+)[)#]`), 0
	err = filepath.WalkDir(
		filepath.Join(unpacked, "share/doc/petgate"),
		func(path string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".md" || strings.Contains(path, "third-party") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range link.FindAllSubmatch(text, -1) {
				links++
				if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(match[1]))); err != nil {
					t.Errorf("%s links to what the archive does not have: %v", path, err)
				}
			}
			return err
		},
	)
	if err != nil || links < 100 {
		t.Errorf("%d links were checked: %v", links, err)
	}
}

// bill is what the test reads of an SPDX document.
type bill struct {
	Creation struct{ Created string } `json:"creationInfo"`
	Packages []struct {
		Name    string
		Version string `json:"versionInfo"`
		License string `json:"licenseDeclared"`
	}
}

// checkModules compares the bill and the notices with what `go version -m` lists of the programs:
// the bill has every module, with its licence, and no other, and the notices have the text of each
// licence.
func checkModules(t *testing.T, d bill, dir, listed string) {
	t.Helper()
	release := regexp.MustCompile(`: go([0-9.]+)\n`).FindStringSubmatch(listed)
	if release == nil {
		t.Fatalf("go version -m does not name the Go release:\n%s", listed)
	}
	want := []string{"petgate " + service.Release, "stdlib " + release[1]}
	for _, match := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(listed, -1) {
		want = append(want, match[1]+" "+match[2])
	}
	var got []string
	for _, p := range d.Packages {
		got = append(got, p.Name+" "+p.Version)
		if p.License == "" || p.License == notStated {
			t.Errorf("the bill names no licence of %s", p.Name)
		}
		texts, err := os.ReadDir(filepath.Join(dir, p.Name))
		isLicense := func(e os.DirEntry) bool {
			return isNotice.MatchString(e.Name()) && !strings.EqualFold(e.Name(), "NOTICE")
		}
		if p.Name != "petgate" && (err != nil || !slices.ContainsFunc(texts, isLicense)) {
			t.Errorf("there is no licence of %s: %v, %v", p.Name, texts, err)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if want = slices.Compact(want); !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("the bill lists\n%q\nand go version -m\n%q", got, want)
	}
	t.Logf("figure: the bill of materials lists the %d modules that go version -m does", len(want)-2)
}
