//go:build e2e

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
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

func read(t *testing.T, elements ...string) string {
	t.Helper()
	return string(must.Get[[]byte](t)(os.ReadFile(filepath.Join(elements...))))
}

// TestDist builds the release of this machine's system in two directories, with different settings
// of the go command, and looks at the result.
func TestDist(t *testing.T) {
	system := runtime.GOOS + "/" + runtime.GOARCH
	var sums []string
	var dist string
	for _, name := range []string{"a", "another directory"} {
		dir := filepath.Join(t.TempDir(), name)
		dist = filepath.Join(dir, "dist")
		must.Do(t, os.Mkdir(dir, 0o755))
		if testkit.CopySource(t, "../..", dir); len(sums) > 0 {
			t.Setenv("GOFLAGS", "-tags=another")
		}
		output(t, dir, "go", "run", "-buildvcs=false", "./deploy/dist", "--targets", system)
		sums = append(sums, read(t, dist, "SHA256SUMS"))
	}
	files := 2 // the archive and its bill
	if runtime.GOOS == "linux" {
		files += len(packagers)
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != files {
		t.Errorf("two directories give the sums\n%s\nand\n%s", sums[0], sums[1])
	}
	for line := range strings.Lines(sums[0]) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		must.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, dist, file)))), sum, "the sum of %s", file)
	}

	name := "petgate-" + service.Release + "-" + runtime.GOOS + "-" + runtime.GOARCH
	output(t, dist, "tar", "xzf", name+".tar.gz")
	listed := checkPrograms(t, filepath.Join(dist, name))
	checkLinks(t, filepath.Join(dist, name, "share/doc/petgate"))
	var d bill
	must.Do(t, json.Unmarshal([]byte(read(t, dist, name+".spdx.json")), &d))
	must.Equal(t, d.Creation.Created, "2023-11-14T22:13:20Z", "when the bill was created")
	checkModules(t, d, filepath.Join(dist, name, noticesIn), listed)

	if _, err := exec.LookPath("dpkg-deb"); err != nil || runtime.GOOS != "linux" {
		t.Log("figure: the package is not looked at: there is no dpkg-deb")
		return
	}
	root := filepath.Join(dist, "root")
	deb := filepath.Join(dist, "petgate-"+service.Release+"-"+runtime.GOARCH+".deb")
	output(t, dist, "dpkg-deb", "-x", deb, root)
	checkPrograms(t, filepath.Join(root, "usr"))
	kept := output(t, dist, "dpkg-deb", "-I", deb, "conffiles")
	must.Equal(t, kept, "/etc/petgate/gateway.env\n/etc/petgate/petsvc.env\n", "files that an upgrade keeps")
	secrets := must.Get[fs.FileInfo](t)(os.Stat(filepath.Join(root, "etc/petgate")))
	must.Equal(t, secrets.Mode().Perm(), 0o700, "who may list secrets")
	unit := read(t, root, "usr/lib/systemd/system/petgate-gateway.service")
	if !strings.Contains(unit, "ExecStart=/usr/bin/gateway\n") {
		t.Errorf("the unit of a package is\n%s", unit)
	}
	for _, page := range []string{"docs/day-one.md", "copyright"} {
		read(t, root, "usr/share/doc/petgate", page)
	}
}

// checkPrograms checks what archives and packages have for a user: the programs, whose modules it
// lists, completions, and the files for other programs.
func checkPrograms(t *testing.T, prefix string) (listed string) {
	t.Helper()
	for _, program := range programs {
		path := filepath.Join(prefix, "bin", program)
		told := output(t, prefix, path, "--version")
		must.Equal(t, told, program+" "+service.Release+"\n", "%s --version says", program)
		listed += output(t, prefix, "go", "version", "-m", path)
	}
	paths := []string{"share/petgate/roles.sql", "share/petgate/rules.yml"}
	for _, completion := range completions {
		paths = append(paths, completion)
	}
	if runtime.GOOS == "linux" {
		paths = append(paths, "lib/systemd/system/petgate-gateway.service")
	}
	for _, path := range paths {
		if read(t, prefix, path) == "" {
			t.Errorf("%s is empty", path)
		}
	}
	return listed
}

// checkLinks checks that the pages link only to what lies beside them.
func checkLinks(t *testing.T, dir string) {
	t.Helper()
	link, links := regexp.MustCompile(`\]\(([^:)#]+)[)#]`), 0
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" || strings.Contains(path, "third-party") {
			return err
		}
		for _, match := range link.FindAllStringSubmatch(read(t, path), -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), match[1])); err != nil {
				t.Errorf("%s links to what the archive does not have: %v", path, err)
			}
		}
		return nil
	})
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
