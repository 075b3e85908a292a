package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func list(t *testing.T) []Package {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,GoFiles", module+"...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var packages []Package
	for decoder := json.NewDecoder(out); ; {
		var p Package
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return packages
}

func TestModule(t *testing.T) {
	packages := list(t)
	for _, violation := range Violations(packages) {
		t.Error(violation)
	}
	for _, fixed := range Unused(packages) {
		t.Errorf("no product code imports %s", fixed)
	}
}

// Purity is more than imports: package time is there for durations, and its clock is not for core.
func TestCoreReadsNoClock(t *testing.T) {
	clock := regexp.MustCompile(`\btime\.(Now|Since|Until|After|Tick|Sleep|New)`)
	checked := 0
	for _, p := range list(t) {
		if !matches(p.ImportPath, []string{module + "shared/core/..."}) {
			continue
		}
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			checked++
			if use := clock.Find(text); use != nil {
				t.Errorf("%s/%s uses %s", p.ImportPath, name, use)
			}
		}
	}
	if checked == 0 {
		t.Error("no file of core was checked")
	}
}

func TestViolationsAreNoticed(t *testing.T) {
	for _, r := range Rules {
		importer, imported := r.violation[0], r.violation[1]
		named := func(p Package) bool {
			return slices.ContainsFunc(Violations([]Package{p}), func(v string) bool { return strings.HasSuffix(v, ": "+r.Why) })
		}
		if !named(Package{ImportPath: importer, Imports: []string{"fmt", imported}}) {
			t.Errorf("%s: unnoticed when %s imports %s", r.Why, importer, imported)
		}
		if named(Package{ImportPath: importer, Imports: []string{"fmt"}}) {
			t.Errorf("%s: noticed without cause", r.Why)
		}
		if got := named(Package{ImportPath: importer, XTestImports: []string{imported}}); got != r.Tests {
			t.Errorf("%s: noticed in a test file: %t, want %t", r.Why, got, r.Tests)
		}
		for _, exempt := range r.Except {
			if named(Package{ImportPath: strings.TrimSuffix(exempt, "/..."), Imports: []string{imported}}) {
				t.Errorf("%s: noticed in %s, which is exempt", r.Why, exempt)
			}
		}
	}
}

func TestAnUnusedFixedPackageIsNoticed(t *testing.T) {
	all := Package{ImportPath: module + "gateway/edge", Imports: Fixed}
	if unused := Unused([]Package{all}); len(unused) != 0 {
		t.Errorf("Unused() = %v", unused)
	}
	for i, fixed := range Fixed {
		some := Package{ImportPath: all.ImportPath, Imports: slices.Delete(slices.Clone(Fixed), i, i+1)}
		kit := Package{ImportPath: module + "shared/testkit", Imports: Fixed, TestImports: Fixed}
		if unused := Unused([]Package{some, kit}); !slices.Equal(unused, []string{fixed}) {
			t.Errorf("without %s: Unused() = %v", fixed, unused)
		}
	}
}
