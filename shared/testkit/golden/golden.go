// Package golden compares what a test has got with a file of the repository.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"petgate/shared/testkit/must"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Updates reports whether files are written instead of compared. Tests whose files have another
// form than goldens ask for it.
func Updates() bool { return *update }

// Check compares a text with testdata/NAME.golden. With random, each text that matches one of these
// patterns is replaced by a number: the same text by the same one.
func Check(t testing.TB, name, got string, random ...string) {
	t.Helper()
	if random != nil {
		numbers := map[string]string{}
		got = regexp.MustCompile(strings.Join(random, "|")).ReplaceAllStringFunc(got, func(found string) string {
			if numbers[found] == "" {
				numbers[found] = fmt.Sprintf("(%d)", len(numbers)+1)
			}
			return numbers[found]
		})
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		must.Do(t, os.MkdirAll("testdata", 0o755))
		must.Do(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must.Do(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s\nIf it is meant: go test -run %s -update, in this directory", path, diff,
			t.Name())
	}
}
