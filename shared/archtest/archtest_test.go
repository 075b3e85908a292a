// Package archtest has the import rules: which package may import which. The rules are data. A test checks them against the
// output of `go list -json`.
package archtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "petgate/"

// listed is the part of `go list -json` that the rules look at.
type listed struct {
	ImportPath                         string
	Dir                                string
	Imports, TestImports, XTestImports []string
	GoFiles                            []string
}

// rule forbids imports. A pattern is an import path, or the beginning of one followed by "...".
type rule struct {
	Why     string
	Of      []string // importers that it binds
	Except  []string // importers that it does not bind
	Forbids []string
	Allows  []string // exceptions to Forbids
	Tests   bool     // it binds test files as well

	violation [2]string // an importer and an import that break the rule: a test checks that this is noticed
}

var programs = []string{module + "gateway/...", module + "petsvc/...", module + "keyadmin/..."}

// clients are the packages that callers of the API may use.
const clients = module + "shared/api/clients/..."

// products are the delivered packages. bench is not one of them: it measures, and needs other imports.
var products = append([]string{module + "shared/...", module + "deploy/..."}, programs...)

// rules are the import rules of the module.
var rules = []rule{
	{
		Why: "programs never import one another: the gateway",
		Of:  programs[:1], Forbids: programs[1:], Tests: true,
		violation: [2]string{module + "gateway/edge", module + "petsvc/pets"},
	},
	{
		Why: "programs never import one another: petsvc",
		Of:  programs[1:2], Forbids: []string{programs[0], programs[2]}, Tests: true,
		violation: [2]string{module + "petsvc", module + "gateway/edge"},
	},
	{
		Why: "programs never import one another: keyadmin",
		Of:  programs[2:], Forbids: programs[:2], Tests: true,
		violation: [2]string{module + "keyadmin", module + "gateway/directory"},
	},
	{
		Why: "shared never imports a program, nor what deploys them",
		Of:  []string{module + "shared/..."}, Forbids: append([]string{module + "deploy/..."}, programs...), Tests: true,
		violation: [2]string{module + "shared/api", module + "petsvc/pets"},
	},
	{
		Why: "core is pure: it imports core and packages without I/O, clock, log or randomness of their own",
		Of:  []string{module + "shared/core/..."}, Forbids: []string{"..."},
		Allows: []string{
			module + "shared/core/...",
			"cmp", "crypto/sha256", "database/sql/driver", "encoding/base32", "encoding/binary", "errors", "fmt", "hash/crc32", "io", "iter", "maps",
			"math", "math/bits", "net/netip", "regexp", "slices", "strconv", "strings", "time", "unicode/utf8",
		},
		violation: [2]string{module + "shared/core/quota", "os"},
	},
	{
		Why: "SQL drivers and migrations are shared/database's matter",
		Of:  products, Except: []string{module + "shared/database", module + "shared/testkit/..."},
		Forbids:   []string{"github.com/lib/pq/...", "modernc.org/sqlite/...", "github.com/pressly/goose/..."},
		violation: [2]string{module + "shared/keystore", "github.com/lib/pq"},
	},
	{
		Why: "Redis is gateway/quotas's matter",
		Of:  products, Except: []string{module + "gateway/quotas/...", module + "shared/testkit/..."},
		Forbids:   []string{"github.com/redis/...", "github.com/go-redis/..."},
		violation: [2]string{module + "gateway/edge", "github.com/redis/go-redis/v9"},
	},
	{
		Why: "OTLP is shared/trace's matter",
		Of:  products, Except: []string{module + "shared/trace", module + "shared/testkit/..."},
		Forbids:   []string{"go.opentelemetry.io/...", "google.golang.org/protobuf/..."},
		violation: [2]string{module + "gateway/edge", "go.opentelemetry.io/proto/slim/otlp/trace/v1"},
	},
	{
		Why: "HTTP by fasthttp stays at the two servers and the Error body",
		Of:  products, Except: []string{module + "gateway/edge", module + "petsvc/pets", module + "shared/api"},
		Forbids:   []string{"github.com/valyala/fasthttp/...", "github.com/fasthttp/..."},
		violation: [2]string{module + "gateway/app", "github.com/valyala/fasthttp"},
	},
	{
		Why: "gateway/http1 reads HTTP with the standard library alone",
		Of:  []string{module + "gateway/http1"}, Forbids: []string{module + "...", "github.com/...", "golang.org/..."},
		violation: [2]string{module + "gateway/http1", module + "gateway/edge"},
	},
	{
		Why: "gateway/upstream knows HTTP and sockets, and nothing of keys, limits or the edge",
		Of:  []string{module + "gateway/upstream"}, Forbids: []string{module + "...", "github.com/..."},
		Allows:    []string{module + "gateway/http1", module + "gateway/share", module + "shared/socket", module + "shared/core/id"},
		violation: [2]string{module + "gateway/upstream", "github.com/valyala/fasthttp"},
	},
	{
		Why: "gateway/console knows the key tables and the admin port, not the request path",
		Of:  []string{module + "gateway/console"}, Forbids: []string{module + "gateway/...", "github.com/..."},
		Allows:    []string{module + "gateway/portal"},
		violation: [2]string{module + "gateway/console", module + "gateway/edge"},
	},
	{
		Why: "gateway/portal writes bytes: it serves nothing, and knows nothing of the edge or of the stores",
		Of:  []string{module + "gateway/portal"}, Forbids: []string{module + "...", "net", "os"},
		Allows:    []string{module + "shared/api", module + "shared/core/apikey"},
		violation: [2]string{module + "gateway/portal", "os"},
	},
	{
		Why: "a client can be copied out of the module: it imports the standard library alone",
		Of:  []string{clients}, Forbids: []string{module + "...", "github.com/...", "golang.org/..."}, Allows: []string{clients},
		violation: [2]string{module + "shared/api/clients/go", module + "shared/api"},
	},
	{
		Why: "the product does not use its clients",
		Of:  products, Except: []string{clients}, Forbids: []string{clients},
		violation: [2]string{module + "gateway/app", module + "shared/api/clients/go"},
	},
	{
		Why: "petsvc knows nothing of keys and limits",
		Of:  []string{module + "petsvc/..."}, Tests: true,
		Forbids:   []string{module + "shared/core/...", module + "shared/keystore", module + "shared/operate", module + "gateway/quotas/..."},
		violation: [2]string{module + "petsvc/pets", module + "shared/keystore"},
	},
	{
		Why: "testing packages stay out of products",
		Of:  products, Except: []string{module + "shared/testkit/...", module + "gateway/quotas/store/storetest"},
		Forbids:   []string{"testing", module + "shared/testkit/...", "pgregory.net/rapid", "go.uber.org/goleak"},
		violation: [2]string{module + "gateway/app", module + "shared/testkit/..."},
	},
}

// foundations are the packages that the product is built on: each must be imported by product code.
var foundations = []string{
	"github.com/valyala/fasthttp", "github.com/fasthttp/router", "github.com/redis/go-redis/v9",
	"github.com/go-redis/redis_rate/v10", "github.com/jmoiron/sqlx", "github.com/lib/pq",
}

// violations returns a line for every import that breaks a rule.
func violations(packages []listed) []string {
	var found []string
	for _, p := range packages {
		for _, r := range rules {
			if !matches(p.ImportPath, r.Of) || matches(p.ImportPath, r.Except) {
				continue
			}
			imports := p.Imports
			if r.Tests {
				imports = slices.Concat(imports, p.TestImports, p.XTestImports)
			}
			for _, path := range imports {
				if matches(path, r.Forbids) && !matches(path, r.Allows) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", p.ImportPath, path, r.Why))
				}
			}
		}
	}
	return found
}

// unused returns the foundations that no product code imports.
func unused(packages []listed) []string {
	var found []string
	for _, fixed := range foundations {
		if !slices.ContainsFunc(packages, func(p listed) bool {
			return isProduct(p.ImportPath) && slices.Contains(p.Imports, fixed)
		}) {
			found = append(found, fixed)
		}
	}
	return found
}

func isProduct(path string) bool {
	return matches(path, products) && !matches(path, []string{module + "shared/testkit/..."})
}

func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		start, open := strings.CutSuffix(pattern, "...")
		return path == strings.TrimSuffix(start, "/") || open && strings.HasPrefix(path, start)
	})
}

func list(t *testing.T) []listed {
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
	var packages []listed
	for decoder := json.NewDecoder(out); ; {
		var p listed
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
	for _, violation := range violations(packages) {
		t.Error(violation)
	}
	for _, fixed := range unused(packages) {
		t.Errorf("no product code imports %s", fixed)
	}
}

// Import rules alone do not keep core pure: it may use package time for durations, but not its clock.
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
	for _, r := range rules {
		importer, imported := r.violation[0], r.violation[1]
		named := func(p listed) bool {
			return slices.ContainsFunc(violations([]listed{p}), func(v string) bool { return strings.HasSuffix(v, ": "+r.Why) })
		}
		if !named(listed{ImportPath: importer, Imports: []string{"fmt", imported}}) {
			t.Errorf("%s: unnoticed when %s imports %s", r.Why, importer, imported)
		}
		if named(listed{ImportPath: importer, Imports: []string{"fmt"}}) {
			t.Errorf("%s: noticed without cause", r.Why)
		}
		if got := named(listed{ImportPath: importer, XTestImports: []string{imported}}); got != r.Tests {
			t.Errorf("%s: noticed in a test file: %t, want %t", r.Why, got, r.Tests)
		}
		for _, exempt := range r.Except {
			if named(listed{ImportPath: strings.TrimSuffix(exempt, "/..."), Imports: []string{imported}}) {
				t.Errorf("%s: noticed in %s, which is exempt", r.Why, exempt)
			}
		}
	}
}

func TestAnUnusedFixedPackageIsNoticed(t *testing.T) {
	all := listed{ImportPath: module + "gateway/edge", Imports: foundations}
	if found := unused([]listed{all}); len(found) != 0 {
		t.Errorf("unused() = %v", found)
	}
	for i, fixed := range foundations {
		some := listed{ImportPath: all.ImportPath, Imports: slices.Delete(slices.Clone(foundations), i, i+1)}
		kit := listed{ImportPath: module + "shared/testkit", Imports: foundations, TestImports: foundations}
		if found := unused([]listed{some, kit}); !slices.Equal(found, []string{fixed}) {
			t.Errorf("without %s: unused() = %v", fixed, found)
		}
	}
}
