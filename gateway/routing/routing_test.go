package routing

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"petgate/shared/api"
	"petgate/shared/testkit/must"
)

// narrowest is what Find must return for a path that nobody has encoded: of the operations that
// have it, the first one in the order of patterns.
func narrowest(operations []api.Operation, method, path string) (best *api.Operation) {
	for i, o := range operations {
		isMethod := o.Method == method || method == http.MethodHead && o.Method == http.MethodGet
		if !isMethod || !o.Pattern().Matches(path) {
			continue
		}
		if best == nil || o.Pattern().Compare(best.Pattern()) < 0 ||
			best.Pattern() == o.Pattern() && o.Method == method {
			best = &operations[i]
		}
	}
	return best
}

// check compares what a document serves with its operations: a path of each template, and that path
// with something changed.
func check(t must.T, operations []api.Operation) {
	t.Helper()
	table := must.Get[*Table](t)(New(operations))
	for i, o := range operations {
		for _, parameter := range []string{"7", "b", "bi", "x.y", "a.json", "default", "me:publish", "a..b", "comments"} {
			path := strings.ReplaceAll(string(o.Pattern()), string(api.Star), parameter)
			for _, path := range []string{path, path + "/", path + "x", strings.TrimSuffix(path, "/"), path[:len(path)-1]} {
				for _, method := range []string{o.Method, http.MethodHead} {
					got, want := table.Find([]byte(method), []byte(path)), narrowest(operations, method, path)
					if (got == nil) != (want == nil) || got != nil && got.Operation != *want {
						t.Fatal(fmt.Sprintf("%s %s is %+v, want %+v", method, path, got, want))
					}
				}
			}
		}
		if i == 2000 { // of a document that a fuzzer or somebody else wrote
			return
		}
	}
}

// corpus has the documents of shared/api.
func corpus(t testing.TB) (documents map[string][]byte) {
	t.Helper()
	names, err := filepath.Glob("../../shared/api/testdata/*")
	if err != nil || len(names) < 10 {
		t.Fatalf("the corpus has %d documents, %v", len(names), err)
	}
	documents = map[string][]byte{"pets": api.Pets().Source()}
	for _, name := range names {
		if documents[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return documents
}

// Templates that cross are served in the order of api.Pattern.Compare, whatever the tree of the
// router finds first.
func TestRoutesThatCross(t *testing.T) {
	segment := rapid.SampledFrom([]string{"b", "bi", "comments", "{x}", "{y}", "{x}.json", "a.{x}", "{x}:publish"})
	path := rapid.Map(rapid.SliceOfN(segment, 1, 3), func(s []string) string { return "/" + strings.Join(s, "/") })
	rapid.Check(t, func(t *rapid.T) {
		operations := map[string]api.Operation{}
		for _, path := range rapid.SliceOfN(path, 1, 12).Draw(t, "paths") {
			o := api.Operation{
				ID:     path,
				Method: rapid.SampledFrom([]string{http.MethodGet, http.MethodHead}).Draw(t, "method"),
				Path:   path,
			}
			operations[o.Method+string(o.Pattern())] = o
		}
		check(t, slices.Collect(maps.Values(operations)))
	})
}

// FuzzDocument: no document makes the gateway panic, and what it serves is what it says that it
// serves.
func FuzzDocument(f *testing.F) {
	for _, data := range corpus(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, err := api.Load("fuzzed", data); err == nil {
			check(t, a.Operations)
		} else if err.Error() == "" {
			t.Error("a document is refused without a reason")
		}
	})
}

// A path that an upstream may read as another operation's is no operation's. A fixed path is
// matched as it was sent.
func TestEncodedPaths(t *testing.T) {
	a, err := api.Load(
		"t",
		[]byte("openapi: 3.0.0\ninfo: {title: T, version: '1'}\npaths:\n  /users/admin: {get: {operationId: admin}}\n"+
			"  /users/{id}: {get: {operationId: user}}\n  /caf%c3%a9/%61: {get: {operationId: cafe}}\n  /caf%c3%a9/{x}: {get: {operationId: other}}\n  /files/{name}:drop: {get: {operationId: drop}}\n  /files/{name}: {get: {operationId: file}}\n"),
	)
	must.Do(t, err)
	table := must.Get[*Table](t)(New(a.Operations))
	for path, want := range map[string]string{
		"/users/admin": "admin", "/users/%61dmin": "", "/users/admi%6E": "", "/users/admin;v=1": "", "/users/%61dmin;": "", "/users/b%6fb": "user",
		"/users/bob;v=1": "user", "/users/%C3%A9": "user", "/%75sers/admin": "", "/caf%C3%A9/a": "cafe", "/caf%C3%A9/%61": "", "/caf%C3%A9/b": "other",
		"/files/a:drop": "drop", "/files/a%3Adrop": "", "/files/a": "file",
	} {
		one := table.Find([]byte(http.MethodGet), []byte(path))
		if (one == nil) != (want == "") || one != nil && one.ID != want {
			t.Errorf("%s is %v, want %q", path, one, want)
		}
	}
}
