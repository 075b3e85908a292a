package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile("[^a-z0-9 _-]")
)

// pages returns the pages for people, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "shared/api/clients/*/*.md"} {
		paths := must.Get[[]string](t)(filepath.Glob("../../" + pattern))
		atLeast(t, len(paths), 1, "pages of "+pattern)
		for _, path := range paths {
			all[path] = read(t, path)
		}
	}
	return all
}

// atLeast ends a test that did not find what it is about.
func atLeast(t *testing.T, found, want int, what string) {
	t.Helper()
	if found < want {
		t.Fatalf("only %d %s were found", found, what)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get[[]byte](t)(os.ReadFile(path)))
}

// hasHeading reports whether a page has a heading that a link with this fragment leads to, by the
// rule of GitHub.
func hasHeading(page, fragment string) bool {
	return slices.ContainsFunc(heading.FindAllStringSubmatch(page, -1), func(match []string) bool {
		words := notSlug.ReplaceAllString(strings.ToLower(match[1]), "")
		return strings.ReplaceAll(words, " ", "-") == fragment
	})
}

func TestLinks(t *testing.T) {
	checked, all := 0, pages(t)
	for path, text := range all {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			to, fragment, _ := strings.Cut(match[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			checked++
			target := path
			if to != "" {
				target = filepath.Join(filepath.Dir(path), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, match[1], err)
			} else if fragment != "" && !hasHeading(read(t, target), fragment) {
				t.Errorf("%s links to %s: there is no such heading", path, match[1])
			}
		}
	}
	atLeast(t, checked, 50, "links")
}

// TestInstallNamesWhatIsNeeded compares docs/install.md with the secrets and components that the
// deployments use.
func TestInstallNamesWhatIsNeeded(t *testing.T) {
	page, checked := read(t, "../../docs/install.md"), 0
	for pattern, name := range map[string]*regexp.Regexp{
		"../systemd/*.service":    regexp.MustCompile(`LoadCredential=\w+:/etc/petgate/(\w+)`),
		"../kubernetes/base/*":    regexp.MustCompile(`secretName: ([\w-]+)`),
		"../kubernetes/*.json":    regexp.MustCompile(`"secretName": "([\w-]+)"`),
		"../kubernetes/example/*": regexp.MustCompile(`- \.\./components/([\w-]+)`),
	} {
		for _, path := range must.Get[[]string](t)(filepath.Glob(pattern)) {
			for _, match := range name.FindAllStringSubmatch(read(t, path), -1) {
				checked++
				if !strings.Contains(page, match[1]) {
					t.Errorf("%s needs %s, which docs/install.md does not name", path, match[1])
				}
			}
		}
	}
	must.Equal(t, checked, 14, "names that were checked")
}

var (
	namedTest   = regexp.MustCompile("`(Test\\w+)`")
	definedTest = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// definedTests returns the names of all tests.
func definedTests(t *testing.T) map[string]bool {
	t.Helper()
	defined := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, match := range definedTest.FindAllStringSubmatch(read(t, path), -1) {
				defined[match[1]] = true
			}
		}
		return err
	})
	must.Do(t, err)
	return defined
}

// Every row of docs/faults.md names the tests that would fail if it were not true. Every test that
// a page names exists.
func TestFaultsNameTheirTests(t *testing.T) {
	defined, rows := definedTests(t), 0
	for line := range strings.Lines(read(t, "../../docs/faults.md")) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault") {
			continue
		}
		rows++
		if !namedTest.MatchString(line) {
			t.Errorf("a row names no test: %s", line)
		}
	}
	atLeast(t, rows, 10, "rows of docs/faults.md")
	for path, text := range pages(t) {
		for _, name := range namedTest.FindAllStringSubmatch(text, -1) {
			if !defined[name[1]] {
				t.Errorf("%s: there is no test %s", path, name[1])
			}
		}
	}
}
