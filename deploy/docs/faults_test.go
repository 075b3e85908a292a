package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

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

// Every row of docs/faults.md names the tests that would fail if it were not true. Every test that a page names exists.
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
	if rows < 10 {
		t.Errorf("only %d rows found", rows)
	}
	for path, text := range pages(t) {
		for _, name := range namedTest.FindAllStringSubmatch(text, -1) {
			if !defined[name[1]] {
				t.Errorf("%s: there is no test %s", path, name[1])
			}
		}
	}
}
