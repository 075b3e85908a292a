package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestFullTests(t *testing.T) {
	var files []*ast.File
	for _, source := range []string{
		`package p
		var size, other = testkit.Size(1, 2), 3
		type rig struct{ size int }
		func (r rig) send() { helper() }
		func (r rig) ask() {}
		func helper() { if testkit.FullSize {} }
		func TestBySize(*testing.T) { print(size) }
		func TestByMethod(*testing.T) { rig{}.send() }
		func TestOfOneSize(*testing.T) { rig{}.ask(); strings.Size() }
		func BenchmarkBySize(*testing.B) { print(size) }`,
		"//go:build " + runtime.GOOS + " && e2e\n\npackage p\nfunc TestTagged(*testing.T) {}",
		"//go:build !race\n\npackage p\nfunc TestUnraced(*testing.T) {}",
		"//go:build !windows\n\npackage p\nfunc TestAnywhere(*testing.T) {}",
		"//go:build soak\n\npackage p\nfunc TestOther(*testing.T) {}",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if got, want := fullTestsOf(files), []string{"TestByMethod", "TestBySize", "TestTagged", "TestUnraced"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestFilter(t *testing.T) {
	const passing = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: figure: 7 apples\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":11.2}
{"Action":"pass","Package":"p","Test":"TestC/part","Elapsed":20}
{"Action":"pass","Package":"p","Test":"TestC","Elapsed":120.6}
{"Action":"pass","Package":"p","Test":"TestD","Elapsed":9}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p","Elapsed":141}
`
	const failing = `{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:3: wrong\n"}
{"Action":"fail","Package":"q","Test":"TestB"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q"}
`
	const unbuilt = `{"ImportPath":"r [r.test]","Action":"build-output","Output":"r.go:1: nonsense\n"}
{"ImportPath":"r [r.test]","Action":"build-fail"}
{"Action":"fail","Package":"r","FailedBuild":"r [r.test]"}
`
	const interrupted = `{"Action":"output","Package":"s","Test":"TestE","Output":"waits\n"}
{"Action":"output","Package":"s/t","Test":"TestE","Output":"another package\n"}
{"Action":"output","Package":"s","Test":"TestF","Output":"panic: stop\n"}
{"Action":"fail","Package":"s","Test":"TestF"}
{"Action":"output","Package":"s","Output":"FAIL\ts\t0.1s\n"}
{"Action":"fail","Package":"s"}
`
	const excluded = `{"Action":"output","Package":"u","Output":"?   \tu\t[no test files]\n"}
{"Action":"skip","Package":"u"}
`
	const passed = "figure: 7 apples\nok  \tp\t0.1s\n     121 s  TestC\n      11 s  TestA\n"
	for _, c := range []struct {
		name, in, out string
		failed        bool
	}{
		{"passing", passing, passed, false},
		{"failing", passing + failing, passed + "    b_test.go:3: wrong\nFAIL\tq\t0.1s\n", true},
		{"not built", unbuilt, "r.go:1: nonsense\n", true},
		{"interrupted", interrupted, "panic: stop\nFAIL\ts\t0.1s\nwaits\n", true},
		{"excluded", excluded, "?   \tu\t[no test files]\n", false},
	} {
		var out strings.Builder
		failed, err := filter(strings.NewReader(c.in), &out, nil)
		if err != nil || failed != c.failed || out.String() != c.out {
			t.Errorf("%s: failed %t, %v, output %q", c.name, failed, err, out.String())
		}
	}
	for _, in := range []string{"", "not JSON"} {
		if failed, err := filter(strings.NewReader(in), &strings.Builder{}, nil); err == nil {
			t.Errorf("%q: failed %t, no error", in, failed)
		}
	}
	petgate := strings.ReplaceAll(passing, `"p"`, `"petgate/deploy/e2e"`)
	for want, isMissing := range map[string]bool{"./deploy/e2e": false, "./deploy": true, "./deploy/e2": true, "./e2e": true} {
		if _, err := filter(strings.NewReader(petgate), &strings.Builder{}, []string{want}); (err != nil) != isMissing {
			t.Errorf("%s: %v", want, err)
		}
	}
	untested := strings.ReplaceAll(petgate, "0.1s", "0.1s [no tests to run]")
	if _, err := filter(strings.NewReader(untested), &strings.Builder{}, []string{"./deploy/e2e"}); err == nil {
		t.Error("no error although none of the wanted package's tests was to run")
	}
}
