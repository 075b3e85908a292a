package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest   = regexp.MustCompile("`(Test\\w+)`")
	definedTest = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// Every row of docs/faults.md names the tests that would fail if it were not true.
func TestFaultsNameTheirTests(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "docs/faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range definedTest.FindAllSubmatch(source, -1) {
			defined[string(match[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault") {
			continue
		}
		rows++
		names := namedTest.FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("a row names no test: %s", line)
		}
		for _, name := range names {
			if !defined[name[1]] {
				t.Errorf("there is no test %s", name[1])
			}
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows found", rows)
	}
}
