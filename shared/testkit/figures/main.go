// Command figures runs, in full size, the tests that `make test` leaves out or runs in a smaller
// size. It prints a summary: the lines that tests print with "figure: ", the output of failed
// tests, and go test's line for each package. It exits with 1 if a test failed. `make e2e` calls
// it, in the root of the module and with the built programs in PETGATE_BIN.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// alone are the packages with tests that judge a time or what something costs, or that keep both
// processors busy. Nothing else runs beside them.
var alone = []string{
	"./deploy/e2e",
	"./gateway/console",
	"./gateway/directory",
	"./gateway/edge",
	"./gateway/quotas",
	"./gateway/quotas/redis",
	"./keyadmin",
	"./shared/socket",
}

// beside is how many of the other packages run at a time. Their tests wait most of the time: for
// servers, for browsers, for limits.
const beside = 3

func main() {
	tests, err := fullTests(os.DirFS("."))
	exitOn(err)
	packages := slices.Sorted(maps.Keys(tests))
	slices.Reverse(packages)
	failed := run(slices.DeleteFunc(packages, func(p string) bool { return slices.Contains(alone, p) }), tests, beside)
	for _, p := range alone {
		failed = run([]string{p}, tests, 1) || failed
	}
	if failed {
		os.Exit(1)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

var (
	// hasFull matches a file whose tests `make test`, which has the race detector, does not build
	// or runs in a smaller size.
	hasFull = regexp.MustCompile(`(?m)^//go:build .*(\be2e\b|!race\b)|\btestkit\.(Size|FullSize)\b`)

	testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
)

// fullTests returns the tests to run, by package such as ./deploy/e2e: all tests of a file that
// hasFull matches. So a file with sizes has the tests that use them.
func fullTests(root fs.FS) (map[string][]string, error) {
	tests := make(map[string][]string)
	err := fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if hasFull.Match(text) {
			for _, found := range testName.FindAllSubmatch(text, -1) {
				p := "./" + path.Dir(name)
				tests[p] = append(tests[p], string(found[1]))
			}
		}
		return err
	})
	return tests, err
}

// run runs the tests of some packages, and reports whether any failed.
func run(packages []string, tests map[string][]string, together int) (failed bool) {
	var names []string
	for _, p := range packages {
		if len(tests[p]) == 0 {
			exitOn(fmt.Errorf("%s has no tests to run", p))
		}
		names = append(names, tests[p]...)
	}
	arguments := []string{"test", "-json", "-vet=off", "-count=1", "-tags=e2e", "-parallel=4", "-timeout=25m"}
	arguments = append(arguments, fmt.Sprint("-p=", together), "-run=^("+strings.Join(names, "|")+")$")
	command := exec.Command("go", append(arguments, packages...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	exitOn(err)
	exitOn(command.Start())
	exitOn(summarize(out, os.Stdout))
	return command.Wait() != nil
}

// event is an event of cmd/test2json.
type event struct{ Action, Package, ImportPath, Test, Output string }

const mark = "figure: "

// packageLine matches what go test prints about a whole package.
var packageLine = regexp.MustCompile(`^((ok  |\?   |FAIL)\t|---|panic:)`)

// summarize writes the summary of in to out.
func summarize(in io.Reader, out io.Writer) error {
	held := make(map[string]string) // output by package and test, until the test has passed or failed
	for decoder := json.NewDecoder(in); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read go test -json: %w", err)
		}
		name := e.Package + e.ImportPath + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			_, figure, isFigure := strings.Cut(e.Output, mark)
			switch {
			case isFigure:
				fmt.Fprint(out, mark, figure)
			case e.Test == "" && packageLine.MatchString(e.Output):
				fmt.Fprint(out, e.Output)
			default:
				held[name] += e.Output
			}
		case "fail", "build-fail":
			for _, other := range slices.Sorted(maps.Keys(held)) {
				// A test that has not ended when its package fails was interrupted by a panic or a
				// timeout.
				if other == name || e.Test == "" && strings.HasPrefix(other, name) {
					fmt.Fprint(out, held[other])
					delete(held, other)
				}
			}
		case "pass", "skip":
			delete(held, name)
		}
	}
}
