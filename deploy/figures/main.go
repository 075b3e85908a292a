// Command figures reads `go test -json` and prints a summary: the lines that tests print with "figure: ", the output of failed
// tests, and go test's line for each package. It exits with 1 if a test failed.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	failed, err := filter(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// event is an event of cmd/test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

const mark = "figure: "

// filter writes the summary of in to out and reports whether anything failed.
func filter(in io.Reader, out io.Writer) (failed bool, err error) {
	held := make(map[string][]string) // output by package and test, until the test has passed or failed
	decoder := json.NewDecoder(in)
	ended := 0 // number of packages; 0: go test did not run
	for {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			if ended == 0 {
				err = errors.New("no package was tested")
			} else {
				err = nil
			}
			return failed, err
		} else if err != nil {
			return true, fmt.Errorf("read go test -json: %w", err)
		}
		name := e.Package + e.ImportPath + " " + e.Test
		if e.Test == "" && (e.Action == "pass" || e.Action == "fail") {
			ended++
		}
		switch e.Action {
		case "output", "build-output":
			if _, figure, ok := strings.Cut(e.Output, mark); ok {
				fmt.Fprint(out, mark, figure)
			} else if e.Test == "" && isSummary(e.Output) {
				fmt.Fprint(out, e.Output)
			} else {
				held[name] = append(held[name], e.Output)
			}
		case "fail", "build-fail":
			failed = true
			fmt.Fprint(out, strings.Join(held[name], ""))
			delete(held, name)
		case "pass", "skip":
			delete(held, name)
		}
	}
}

func isSummary(line string) bool {
	for _, start := range []string{"ok  \t", "FAIL\t", "---", "panic:"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}
