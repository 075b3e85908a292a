package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// noticesIn is where an archive has the licences and notices of what is linked into its programs.
const noticesIn = "share/doc/petgate/third-party/"

// isNotice matches the names of files whose text has to be passed on.
var isNotice = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)[^.]*(\.(txt|md))?$`)

// notices are the licences of modules.
type notices struct {
	files
	modules map[string]module // by path
}

// module is a module that the programs are made of.
type module struct {
	version string
	license string // an SPDX expression
}

// noticesOf collects the texts of all modules that a system's programs are made of, and of Go's
// standard library. A directory of a module may have a licence of its own.
func noticesOf(t target) (notices, error) {
	n := notices{files{}, map[string]module{}}
	args := []string{
		"list",
		"-deps",
		"-f",
		"{{if .Standard}}" + standardName + "\t" + strings.TrimPrefix(runtime.Version(), "go") +
			"\t{{.Root}}\t{{.Root}}{{else}}" +
			"{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{end}}{{end}}{{.Dir}}{{end}}",
	}
	for _, program := range programs {
		args = append(args, "./"+program)
	}
	cmd := exec.Command("go", args...)
	cmd.Env, cmd.Stderr = t.environ(), os.Stderr
	listed, err := cmd.Output()
	if err != nil {
		return n, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(listed)) {
		part := strings.Split(strings.TrimSpace(line), "\t")
		if len(part) < 4 { // our own
			continue
		}
		path, version, root := part[0], part[1], part[2]
		for dir := part[3]; len(dir) >= len(root); dir = filepath.Dir(dir) {
			if err := n.add(path, version, root, dir); err != nil {
				return n, err
			}
		}
		if n.modules[path].license == "" {
			return n, fmt.Errorf("%s in %s has no licence", path, root)
		}
	}
	return n, nil
}

// add adds the texts in a directory of a module. The licence of the module is that of its root.
func (n notices) add(path, version, root, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	within, err := filepath.Rel(root, dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		to := noticesIn + filepath.ToSlash(filepath.Join(path, within, entry.Name()))
		if _, known := n.files[to]; known || !entry.Type().IsRegular() || !isNotice.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		n.files[to] = file{text, 0o644}
		if dir == root && n.modules[path].license == "" {
			n.modules[path] = module{version, licenseOf(text)}
		}
	}
	return nil
}

// coveredMin is how much of a file must be the text of licences, in percent, so that they are all
// that it grants.
const coveredMin = 80

// licenseOf returns the SPDX expression of a licence's text.
func licenseOf(text []byte) string {
	found := licensecheck.Scan(text)
	ids := map[string]bool{}
	for _, match := range found.Match {
		ids[match.ID] = true
	}
	if found.Percent < coveredMin {
		return notStated
	}
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(ids)), " AND "), notStated)
}

// writeNotices writes the licences of the programs of this system to a directory, for images.
func writeNotices(dir string) error {
	n, err := noticesOf(target{cmp.Or(os.Getenv("GOOS"), runtime.GOOS), cmp.Or(os.Getenv("GOARCH"), runtime.GOARCH)})
	if err != nil {
		return err
	}
	text, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	n.files["share/doc/petgate/LICENSE"] = file{text, 0o644}
	for path, f := range n.files {
		to := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.content, f.mode)); err != nil {
			return err
		}
	}
	return nil
}
