package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFullTests(t *testing.T) {
	const size = "testkit" + ".Size(1, 2)" // in parts, so that this file has none itself
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"p/size_test.go":    "var n = " + size + "\nfunc TestSize(t *testing.T) {}\nfunc FuzzSize(f *testing.F) {}\nfunc helper() {}\n",
		"p/tagged_test.go":  "//go:build linux && e2e\n\nfunc TestTagged(t *testing.T) {}\n",
		"p/raced_test.go":   "//go:build race\n\nfunc TestRaced(t *testing.T) {}\n",
		"p/plain_test.go":   "func TestPlain(t *testing.T) {}\n",
		"p/p.go":            "var n = " + size + "\nfunc TestNone() {}\n",
		"q/r/costs_test.go": "//go:build !race\n\nfunc TestCosts(t *testing.T) {}\nfunc BenchmarkCosts(b *testing.B) {}\nfunc (r rig) TestMethod() {}\n",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	got, err := fullTests(root)
	if want := "map[./p:[TestSize FuzzSize TestTagged] ./q/r:[TestCosts]]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct{ name, in, out string }{
		{"passing", `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: figure: 7 apples\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":11.2}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p","Elapsed":141}`, "figure: 7 apples\nok  \tp\t0.1s\n"},
		{"failing", `{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:3: wrong\n"}
{"Action":"fail","Package":"q","Test":"TestB"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q"}`, "    b_test.go:3: wrong\nFAIL\tq\t0.1s\n"},
		{"not built", `{"ImportPath":"r [r.test]","Action":"build-output","Output":"r.go:1: nonsense\n"}
{"ImportPath":"r [r.test]","Action":"build-fail"}
{"Action":"fail","Package":"r","FailedBuild":"r [r.test]"}`, "r.go:1: nonsense\n"},
		{"interrupted", `{"Action":"output","Package":"s","Test":"TestE","Output":"waits\n"}
{"Action":"output","Package":"s/t","Test":"TestE","Output":"another package\n"}
{"Action":"output","Package":"s","Test":"TestF","Output":"panic: stop\n"}
{"Action":"fail","Package":"s","Test":"TestF"}
{"Action":"output","Package":"s","Output":"FAIL\ts\t0.1s\n"}
{"Action":"fail","Package":"s"}`, "panic: stop\nFAIL\ts\t0.1s\nwaits\n"},
	} {
		var out strings.Builder
		if err := summarize(strings.NewReader(c.in), &out); err != nil || out.String() != c.out {
			t.Errorf("%s: %v, output %q", c.name, err, out.String())
		}
	}
	if err := summarize(strings.NewReader("not JSON"), &strings.Builder{}); err == nil {
		t.Error("no error for what is not JSON")
	}
}
