package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logKeys are the names of the fields of all logs, with their meaning. One thing has one name, so that a search in the logs needs one
// word. A new field takes a name of this list if one fits.
var logKeys = map[string]string{
	"program": "the program that wrote the line", "version": "of the program",
	"error": "what failed, with its cause", "panic": "the value of a panic", "stack": "of a panic",
	"requestId": "of a request", "traceId": "of a sampled request", "client": "the address of the client", "method": "of a request", "path": "of a request, or of a file",
	"operation": "of a request, by its ID in openapi.yaml", "status": "of a response", "outcome": "ok, or the code of a refusal",
	"bytes": "of a response's body", "micros": "duration in microseconds",
	"tenant": "its ID", "key": "its ID", "gateway": "its ID", "incarnation": "of a gateway's process",
	"state": "told to systemd", "adminAddress": "of a gateway's or a program's admin port", "listen": "the address of a listener", "upstream": "its address",
	"upstreams": "their addresses", "environment": "of the keys that are accepted", "database": "its URL without the password",
	"quotas": "where they are counted", "traces": "where they are sent, or off", "tls": "whether the admin port uses TLS", "variables": "names of environment variables",
	"document": "its title, version and hash", "operations": "how many",
	"event": "its ID", "keys": "how many", "tenants": "how many", "bans": "how many", "kind": "of a lost change", "until": "the end of a ban or of a session",
	"session": "of the console, by its ID", "actor": "who opened a session",
	"asOf": "the time of the data", "problems": "found in Redis", "how": "quotas are decided without Redis",
	"delay": "of a drain", "limit": "of a drain", "connections": "how many are held", "connectionsMax": "the setting",
	"openFiles": "the limit", "needed": "how many open files", "limitBytes": "of Go's memory",
}

// isLog matches the names of loggers.
var isLog = regexp.MustCompile(`(?i)log$`)

// firstKey is the place of the first key among the arguments of a logger's method.
var firstKey = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "Log": 3}

// A field has one name in all logs: each name is in the list above, and the list has no other names.
func TestLogKeys(t *testing.T) {
	const root = "../.."
	used := map[string]string{"program": "shared/service"} // With, before the logger has a name
	note := func(at token.Position, key string) {
		if logKeys[key] == "" {
			t.Errorf("%s: the log key %q is not in the list of this test: use a name of the list, or add it", at, key)
		}
		used[key] = at.String()
	}
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if entry.IsDir() && (name == ".git" || name == "bench" || entry.Name() == "testdata" || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				for _, key := range keysOf(n) {
					note(files.Position(n.Pos()), key)
				}
			case *ast.KeyValueExpr: // service.Serving
				facts, isList := n.Value.(*ast.CompositeLit)
				if isList && nameOf(n.Key) == "Facts" {
					for i := 0; i < len(facts.Elts); i += 2 {
						if key, isString := constant(facts.Elts[i]); isString {
							note(files.Position(n.Pos()), key)
						}
					}
				}
			case *ast.BasicLit: // the access log of the gateway is written without a logger
				if n.Kind == token.STRING && strings.HasSuffix(filepath.ToSlash(name), "edge/accesslog.go") {
					for _, match := range jsonKey.FindAllStringSubmatch(n.Value, -1) {
						if !slices.Contains(slogKeys, match[1]) {
							note(files.Position(n.Pos()), match[1])
						}
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range logKeys {
		if used[key] == "" {
			t.Errorf("no log has the key %q: remove it from the list of this test", key)
		}
	}
}

// jsonKey matches the members of an object.
var jsonKey = regexp.MustCompile(`"(\w+)":`)

// slogKeys are those of slog itself.
var slogKeys = []string{"time", "level", "msg"}

// keysOf returns the constant keys of a call of a logger.
func keysOf(call *ast.CallExpr) (keys []string) {
	method, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod {
		return nil
	}
	if owner, isName := method.X.(*ast.Ident); isName && owner.Name == "slog" && len(call.Args) == 2 {
		if key, isString := constant(call.Args[0]); isString && slices.Contains([]string{"String", "Int", "Int64", "Any", "Bool"}, method.Sel.Name) {
			return []string{key}
		}
	}
	first, isLogging := firstKey[method.Sel.Name]
	if !isLogging || !isLog.MatchString(nameOf(method.X)) || call.Ellipsis.IsValid() {
		return nil
	}
	for i := first; i < len(call.Args); i += 2 {
		if key, isString := constant(call.Args[i]); isString {
			keys = append(keys, key)
		}
	}
	return keys
}

// nameOf returns the last name of an expression such as d.cfg.Log or s.Log.With(…).
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		if method, isMethod := e.Fun.(*ast.SelectorExpr); isMethod && method.Sel.Name == "With" {
			return nameOf(method.X)
		}
	}
	return ""
}

func constant(e ast.Expr) (string, bool) {
	literal, isLiteral := e.(*ast.BasicLit)
	if !isLiteral || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}
