package main

import (
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	const passing = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: figure: 7 apples\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
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
	for _, c := range []struct {
		name, in, out string
		failed        bool
	}{
		{"passing", passing, "figure: 7 apples\nok  \tp\t0.1s\n", false},
		{"failing", passing + failing, "figure: 7 apples\nok  \tp\t0.1s\n    b_test.go:3: wrong\nFAIL\tq\t0.1s\n", true},
		{"not built", unbuilt, "r.go:1: nonsense\n", true},
	} {
		var out strings.Builder
		failed, err := filter(strings.NewReader(c.in), &out)
		if err != nil || failed != c.failed || out.String() != c.out {
			t.Errorf("%s: failed %t, %v, output %q", c.name, failed, err, out.String())
		}
	}
	for _, in := range []string{"", "not JSON"} {
		if failed, err := filter(strings.NewReader(in), &strings.Builder{}); err == nil {
			t.Errorf("%q: failed %t, no error", in, failed)
		}
	}
}
