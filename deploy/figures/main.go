// Command figures runs, in full size, the tests that `make test` leaves out or runs in a smaller size. It prints a summary: the lines
// that tests print with "figure: ", the output of failed tests, go test's line for each package, and its slowest tests. It exits with 1
// if a test failed, or if one of the packages was not tested. A package without test files for this system, which go test skips, counts
// as tested. `make e2e` calls it, in the root of the module and with the built programs in PETGATE_BIN.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// alone are the packages with tests that judge a time or what something costs. Nothing else runs beside them.
var alone = []string{"./deploy/e2e", "./gateway/directory", "./gateway/edge", "./gateway/quotas", "./keyadmin", "./shared/socket"}

// beside is how many of the other packages run at a time. Their tests wait most of the time: for servers, for browsers, for limits.
const beside = 3

func main() {
	tests, err := fullTests(".")
	exitOn(err)
	packages := slices.Sorted(maps.Keys(tests))
	slices.Reverse(packages) // ./deploy/local compiles for minutes, so it begins before the browsers
	others := slices.DeleteFunc(slices.Clone(packages), func(p string) bool { return slices.Contains(alone, p) })
	failed := run(others, tests, beside)
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

// run runs the tests of some packages, and reports whether any failed.
func run(packages []string, tests map[string][]string, together int) (failed bool) {
	var names []string
	for _, p := range packages {
		names = append(names, tests[p]...)
	}
	command := exec.Command("go", append([]string{
		"test", "-json", "-vet=off", "-count=1", "-tags=e2e", fmt.Sprint("-p=", together), "-parallel=4", "-timeout=25m",
		"-run=^(" + strings.Join(names, "|") + ")$",
	}, packages...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	exitOn(err)
	exitOn(command.Start())
	failed, err = filter(out, os.Stdout, packages)
	exitOn(err)
	return command.Wait() != nil || failed
}

// event is an event of cmd/test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // s
}

const (
	mark       = "figure: "
	slowerThan = 10.0 // s: a test that takes longer is named
)

// filter writes the summary of in to out and reports whether anything failed. It returns an error unless every wanted package ended.
func filter(in io.Reader, out io.Writer, wanted []string) (failed bool, err error) {
	held := make(map[string][]string) // output by package and test, until the test has passed or failed
	slow := make(map[string][]event)  // by package
	decoder := json.NewDecoder(in)
	var ended []string
	untested := make(map[string]bool) // packages with tests of which none was to run
	for {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return failed, missing(wanted, ended)
		} else if err != nil {
			return true, fmt.Errorf("read go test -json: %w", err)
		}
		name := e.Package + e.ImportPath + " " + e.Test
		if hasEnded := slices.Contains([]string{"pass", "fail", "skip"}, e.Action); hasEnded && e.Test == "" {
			if !untested[e.Package] {
				ended = append(ended, e.Package)
			}
			slices.SortFunc(slow[e.Package], func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
			for _, s := range slow[e.Package] {
				fmt.Fprintf(out, "    %4.0f s  %s\n", s.Elapsed, s.Test)
			}
		} else if hasEnded && e.Elapsed > slowerThan && !strings.Contains(e.Test, "/") {
			slow[e.Package] = append(slow[e.Package], e)
		}
		switch e.Action {
		case "output", "build-output":
			if _, figure, ok := strings.Cut(e.Output, mark); ok {
				fmt.Fprint(out, mark, figure)
			} else if e.Test == "" && isSummary(e.Output) {
				fmt.Fprint(out, e.Output)
				untested[e.Package] = strings.Contains(e.Output, "[no tests to run]")
			} else {
				held[name] = append(held[name], e.Output)
			}
		case "fail", "build-fail":
			failed = true
			for _, other := range slices.Sorted(maps.Keys(held)) {
				// A test that has not ended when its package fails was interrupted by a panic or a timeout.
				if other == name || e.Test == "" && strings.HasPrefix(other, name) {
					fmt.Fprint(out, strings.Join(held[other], ""))
					delete(held, other)
				}
			}
		case "pass", "skip":
			delete(held, name)
		}
	}
}

// missing returns an error if a wanted package is not among those that ended: go test then did not run, or did not find it.
func missing(wanted, ended []string) error {
	for _, w := range wanted {
		if !slices.Contains(ended, "petgate"+strings.TrimPrefix(w, ".")) {
			return fmt.Errorf("%s was not tested", w)
		}
	}
	if len(ended) == 0 {
		return errors.New("no package was tested")
	}
	return nil
}

func isSummary(line string) bool {
	for _, start := range []string{"ok  \t", "?   \t", "FAIL\t", "---", "panic:"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}
