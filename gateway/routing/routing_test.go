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

// plain is the rule that Find must keep for a path that is read in one way: of the operations in
// the order of patterns, the first one that has the path.
type plain []api.Operation

func plainOf(operations []api.Operation) plain {
	return slices.SortedStableFunc(slices.Values(operations),
		func(a, b api.Operation) int { return a.Pattern().Compare(b.Pattern()) })
}

func (p plain) find(method, path string) *api.Operation {
	for i, o := range p {
		if !o.Pattern().Matches(path) {
			continue
		}
		isOwn := func(other api.Operation) bool { return other.Method == method && other.Pattern() == o.Pattern() }
		isGetForHead := method == http.MethodHead && o.Method == http.MethodGet && !slices.ContainsFunc(p, isOwn)
		if o.Method == method || isGetForHead {
			return &p[i]
		}
	}
	return nil
}

// check compares what a table finds with the plain rule.
func check(t must.T, operations []api.Operation, paths []string) {
	t.Helper()
	table, rule := must.Get[*Table](t)(New(operations)), plainOf(operations)
	for _, path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			got, want := table.Find([]byte(method), []byte(path)), rule.find(method, path)
			if (got == nil) != (want == nil) || got != nil && got.Operation != *want {
				t.Fatal(fmt.Sprintf("%s %q is %+v, want %+v", method, path, got, want))
			}
		}
	}
}

// pathsOf returns paths of the templates, and paths that differ little from them.
func pathsOf(operations []api.Operation) (paths []string) {
	parameters := []string{"7", "b", "bi", "x.y", "a.json", "default", "me:publish", "a..b", "comments"}
	for _, o := range operations {
		for _, parameter := range parameters {
			path := strings.ReplaceAll(string(o.Pattern()), string(api.Star), parameter)
			paths = append(paths, path, path+"/", path+"x", strings.TrimSuffix(path, "/"), path[:len(path)-1])
		}
	}
	return paths
}

// corpus has the documents of shared/api.
func corpus(t testing.TB) (documents map[string][]byte) {
	t.Helper()
	names, err := filepath.Glob("../../shared/api/testdata/*.[jy]*")
	if err != nil || len(names) < 10 {
		t.Fatalf("the corpus has %d documents, %v", len(names), err)
	}
	documents = map[string][]byte{"pets": api.Pets().Source()}
	for _, name := range names {
		documents[name] = must.Get[[]byte](t)(os.ReadFile(name))
	}
	return documents
}

// Templates that cross are served in the order of api.Pattern.Compare, whatever the tree has.
func TestRoutesThatCross(t *testing.T) {
	segment := rapid.SampledFrom(
		[]string{"b", "bi", "comments", "{x}", "{y}", "{x}.json", "a.{x}", "{x}:publish", "{x}b{y}"})
	path := rapid.Map(rapid.SliceOfN(segment, 1, 4), func(s []string) string { return "/" + strings.Join(s, "/") })
	sent := rapid.StringMatching("(/(b|bi|a|comments|[ab.]{0,5}(json|:publish)?)){1,5}")
	rapid.Check(t, func(t *rapid.T) {
		operations := map[string]api.Operation{}
		for _, path := range rapid.SliceOfN(path, 1, 12).Draw(t, "paths") {
			method := rapid.SampledFrom([]string{http.MethodGet, http.MethodHead, http.MethodPost}).Draw(t, "method")
			o := api.Operation{ID: path, Method: method, Path: path}
			operations[method+string(o.Pattern())] = o
		}
		all := slices.Collect(maps.Values(operations))
		check(t, all, append(pathsOf(all), rapid.SliceOfN(sent, 0, 20).Draw(t, "sent")...))
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
			check(t, a.Operations, pathsOf(a.Operations[:min(len(a.Operations), 200)]))
		} else if err.Error() == "" {
			t.Error("a document is refused without a reason")
		}
	})
}

// A path is matched as it was sent. It has no operation if an upstream may read it as the path of
// another one.
func TestEncodedPaths(t *testing.T) {
	a := must.Get[*api.API](t)(api.Load("t", []byte(`
openapi: 3.0.0
info: {title: T, version: '1'}
paths:
  /users/admin: {get: {operationId: admin}}
  /users/{id}: {get: {operationId: user}}
  /caf%c3%a9/%61: {get: {operationId: cafe}}
  /caf%c3%a9/{x}: {get: {operationId: other}}
  /files/{name}:drop: {get: {operationId: drop}}
  /files/{name}: {get: {operationId: file}}
  /{kind}/{name}: {get: {operationId: any}}
`)))
	table := must.Get[*Table](t)(New(a.Operations))
	for path, want := range map[string]string{
		"/users/admin": "admin", "/users/%61dmin": "", "/users/admi%6E": "", "/users/admin;v=1": "", "/users/%61dmin;": "",
		"/users;v=1/bob": "", "/%75sers/admin": "", "/cats;v=1/tom": "any",
		"/users/b%6fb": "user", "/users/bob;v=1": "user", "/users/%C3%A9": "user",
		"/caf%C3%A9/a": "cafe", "/caf%C3%A9/%61": "", "/caf%C3%A9/b": "other",
		"/files/a:drop": "drop", "/files/a%3Adrop": "", "/files/a": "file",
	} {
		one := table.Find([]byte(http.MethodGet), []byte(path))
		if (one == nil) != (want == "") || one != nil && one.ID != want {
			t.Errorf("%s is %v, want %q", path, one, want)
		}
	}
}
