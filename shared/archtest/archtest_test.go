// Package archtest checks the rules of this module: which package may import which, and how long a
// file may be.
package archtest

import (
	"bytes"
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

	"petgate/shared/testkit/must"
)

// rule forbids imports. Each of its lists has patterns, separated by spaces: an import path, or the
// beginning of one followed by "...". "./" is this module.
type rule struct {
	why     string
	of      string // importers that it binds
	except  string // importers that it does not bind
	forbids string
	allows  string // exceptions to forbids
	tests   bool   // it binds test files as well
}

// products are the delivered packages. bench is not one of them: it measures, and needs other
// imports.
const (
	products = "./gateway/... ./petsvc/... ./keyadmin/... ./shared/... ./deploy/..."
	testkit  = "./shared/testkit/..."
)

var rules = []rule{
	{why: "programs never import one another", of: "./gateway/...", forbids: "./petsvc/... ./keyadmin/...", tests: true},
	{why: "programs never import one another", of: "./petsvc/...", forbids: "./gateway/... ./keyadmin/...", tests: true},
	{why: "programs never import one another", of: "./keyadmin/...", forbids: "./gateway/... ./petsvc/...", tests: true},
	{
		why:     "shared never imports a program, nor what deploys them",
		of:      "./shared/...",
		forbids: "./gateway/... ./petsvc/... ./keyadmin/... ./deploy/...",
		tests:   true,
	},
	{
		why:     "core is pure: it imports core and packages without I/O, clock, log or randomness of their own",
		of:      "./shared/core/...",
		forbids: "...",
		allows: "./shared/core/... bytes cmp crypto/sha256 database/sql/driver encoding/base32 encoding/binary " +
			"errors fmt hash/crc32 io iter maps math math/bits net/netip regexp slices strconv strings time unicode/utf8",
	},
	{
		why:     "SQL drivers and migrations are shared/database's matter",
		of:      products,
		except:  "./shared/database " + testkit,
		forbids: "github.com/lib/pq/... modernc.org/sqlite/... github.com/pressly/goose/...",
	},
	{
		why:     "Redis is gateway/quotas's matter",
		of:      products,
		except:  "./gateway/quotas/... " + testkit,
		forbids: "github.com/redis/... github.com/go-redis/...",
	},
	{
		why:     "OTLP is shared/trace's matter",
		of:      products,
		except:  "./shared/trace " + testkit,
		forbids: "go.opentelemetry.io/... google.golang.org/protobuf/...",
	},
	{
		why:     "fasthttp stays in the rooms that serve connections",
		of:      products,
		except:  "./gateway/front ./petsvc/pets",
		forbids: "github.com/valyala/fasthttp/...",
	},
	{
		why:     "fasthttp's router matches the paths of petsvc, which are few and known",
		of:      products,
		except:  "./petsvc/pets",
		forbids: "github.com/fasthttp/router/...",
	},
	{
		why:     "gateway/front knows connections and HTTP, and nothing of keys, limits or the edge",
		of:      "./gateway/front",
		forbids: "./...",
		allows:  "./gateway/http1 ./gateway/share ./shared/socket ./shared/core/id",
	},
	{
		why:     "gateway/http1 reads HTTP with the standard library alone",
		of:      "./gateway/http1",
		forbids: "./... github.com/... golang.org/...",
	},
	{
		why:     "gateway/upstream knows HTTP and sockets, and nothing of keys, limits or the edge",
		of:      "./gateway/upstream",
		forbids: "./... github.com/...",
		allows: "./gateway/http1 ./shared/socket ./shared/sharded ./shared/core/id " +
			"github.com/prometheus/client_golang/prometheus",
	},
	{
		why:     "the rooms beside gateway/edge get facts and return values: they know no connection and no stage",
		of:      "./gateway/answers ./gateway/claims ./gateway/routing ./gateway/strikes",
		forbids: "./gateway/... github.com/... net os",
		allows:  "./gateway/directory ./gateway/http1 ./gateway/portal ./gateway/share",
	},
	{
		why:     "a snapshot is a file of rows: it knows nothing of what a gateway does with them",
		of:      "./gateway/directory/snapshot",
		forbids: "./... github.com/...",
		allows:  "./shared/core/... ./shared/durable ./shared/keystore",
	},
	{
		why:     "gateway/console knows the key tables and the admin port, not the request path",
		of:      "./gateway/console",
		forbids: "./gateway/... github.com/...",
		allows:  "./gateway/portal github.com/dustin/go-humanize",
	},
	{
		why:     "gateway/operators knows the key tables and the admin port, not the request path",
		of:      "./gateway/operators",
		forbids: "./gateway/... github.com/...",
		allows:  "./gateway/quotas/authfailures github.com/go-json-experiment/json/...",
	},
	{
		why:     "gateway/portal writes bytes: it serves nothing, and knows nothing of the edge or of the stores",
		of:      "./gateway/portal",
		forbids: "./... net os",
		allows:  "./shared/api ./shared/api/clients ./shared/api/code ./shared/core/...",
	},
	{
		why:     "a client can be copied out of the module: it imports the standard library alone",
		of:      "./shared/api/clients/...",
		forbids: "./... github.com/... golang.org/...",
		allows:  "./shared/api/clients/...",
	},
	{
		why:     "the product hands its clients out, and does not use them",
		of:      products,
		except:  "./shared/api/clients/...",
		forbids: "./shared/api/clients/go",
	},
	{
		why:     "the tables of the keys are the matter of shared/keystore and its rooms",
		of:      products,
		except:  "./shared/keystore/... ./keyadmin ./deploy/local ./gateway/app " + testkit,
		forbids: "./shared/keystore/schema",
	},
	{
		why:     "changes of the key tables know nothing of the rooms that use them",
		of:      "./shared/keystore ./shared/keystore/schema",
		forbids: "./...",
		allows:  "./shared/core/... ./shared/database ./shared/keystore/schema",
	},
	{
		why:     "petsvc knows nothing of keys and limits",
		of:      "./petsvc/...",
		forbids: "./shared/core/... ./shared/keystore/... ./shared/operate ./gateway/quotas/...",
		tests:   true,
	},
	{
		why:     "testing packages stay out of products",
		of:      products,
		except:  testkit,
		forbids: "testing pgregory.net/rapid go.uber.org/goleak " + testkit,
	},
}

// foundations are the packages that the product is built on: each must be imported by product code.
const foundations = "github.com/valyala/fasthttp github.com/fasthttp/router github.com/redis/go-redis/v9 " +
	"github.com/go-redis/redis_rate/v10 github.com/jmoiron/sqlx github.com/lib/pq"

// linesMax is how long a file of a product may be.
const linesMax = 600

// listed is the part of `go list -json` that the rules look at.
type listed struct {
	ImportPath, Dir                             string
	Imports, TestImports, XTestImports, GoFiles []string
}

// matches reports whether a list of patterns has one for a path.
func matches(path, patterns string) bool {
	all := strings.Fields(strings.ReplaceAll(patterns, "./", "petgate/"))
	return slices.ContainsFunc(all, func(pattern string) bool {
		start, isOpen := strings.CutSuffix(pattern, "...")
		return path == strings.TrimSuffix(start, "/") || isOpen && strings.HasPrefix(path, start)
	})
}

func list(t *testing.T) (packages []listed) {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,GoFiles", "petgate/...")
	cmd.Stderr = os.Stderr
	out := must.Get[[]byte](t)(cmd.Output())
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImports(t *testing.T) {
	packages := list(t)
	for _, r := range rules {
		for _, pattern := range strings.Fields(r.of + " " + r.except) {
			if !slices.ContainsFunc(packages, func(p listed) bool { return matches(p.ImportPath, pattern) }) {
				t.Errorf("%s: no package is %s", r.why, pattern)
			}
		}
	}
	missing := strings.Fields(foundations)
	for _, p := range packages {
		for _, r := range rules {
			if !matches(p.ImportPath, r.of) || matches(p.ImportPath, r.except) {
				continue
			}
			imports := p.Imports
			if r.tests {
				imports = slices.Concat(imports, p.TestImports, p.XTestImports)
			}
			for _, path := range imports {
				if matches(path, r.forbids) && !matches(path, r.allows) {
					t.Errorf("%s imports %s: %s", p.ImportPath, path, r.why)
				}
			}
		}
		if matches(p.ImportPath, products) && !matches(p.ImportPath, testkit) {
			missing = slices.DeleteFunc(missing, func(path string) bool { return slices.Contains(p.Imports, path) })
		}
	}
	if len(missing) > 0 {
		t.Errorf("no product code imports %s", missing)
	}
}

// Import rules alone do not keep core pure: it may use package time for durations, but not its
// clock.
func TestFiles(t *testing.T) {
	clock := regexp.MustCompile(`\btime\.(Now|Since|Until|After|Tick|Sleep|New)`)
	for _, p := range list(t) {
		for _, name := range p.GoFiles {
			text := must.Get[[]byte](t)(os.ReadFile(filepath.Join(p.Dir, name)))
			if use := clock.Find(text); use != nil && matches(p.ImportPath, "./shared/core/...") {
				t.Errorf("%s/%s uses %s", p.ImportPath, name, use)
			}
			lines := bytes.Count(text, []byte("\n"))
			isBound := matches(p.ImportPath, products) && !strings.Contains(name, ".gen.")
			if isBound && lines > linesMax {
				t.Errorf("%s/%s has %d lines, more than %d", p.ImportPath, name, lines, linesMax)
			}
		}
	}
}
