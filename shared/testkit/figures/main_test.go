package main

import (
	"fmt"
	"testing"
	"testing/fstest"
)

func TestFullTests(t *testing.T) {
	const size = "testkit" + ".Size(1, 2)" // in parts, so that this file has none itself
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"p/size_test.go": "var n = " + size + "\nfunc TestSize(t *testing.T) {}\n" +
			"func FuzzSize(f *testing.F) {}\nfunc helper() {}\n",
		"p/tagged_test.go": "//go:build linux && e2e\n\nfunc TestTagged(t *testing.T) {}\n",
		"p/raced_test.go":  "//go:build race\n\nfunc TestRaced(t *testing.T) {}\n",
		"p/plain_test.go":  "func TestPlain(t *testing.T) {}\n",
		"p/p.go":           "var n = " + size + "\nfunc TestNone() {}\n",
		"q/r/costs_test.go": "//go:build !race\n\nfunc TestCosts(t *testing.T) {}\n" +
			"func BenchmarkCosts(b *testing.B) {}\nfunc (r rig) TestMethod() {}\n",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	got, err := fullTests(root)
	if want := "map[./p:[TestSize FuzzSize TestTagged] ./q/r:[TestCosts]]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
}
