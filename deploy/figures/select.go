package main

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// fullTests returns the tests, by package such as ./deploy/e2e, that `make test` leaves out or runs in a smaller size: those that use
// testkit.Size or testkit.FullSize, or are in a file that `make test` does not build, directly or through other declarations of their
// package's tests. It goes by names alone, so it may return a few tests too many.
func fullTests(root string) (map[string][]string, error) {
	sources := make(map[string][]*ast.File) // by package
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		dir = "./" + filepath.ToSlash(dir)
		sources[dir] = append(sources[dir], file)
		return err
	})
	tests := make(map[string][]string)
	for dir, files := range sources {
		if names := fullTestsOf(files); len(names) > 0 {
			tests[dir] = names
		}
	}
	return tests, err
}

// fullTestsOf returns those of one package, sorted.
func fullTestsOf(files []*ast.File) (tests []string) {
	uses := make(map[string][]string) // the names that a declaration uses; "e2e" stands for a reason to run in full size
	for _, file := range files {
		for _, declaration := range file.Decls {
			var used []string
			var visit func(ast.Node) bool
			visit = func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "testkit" && (n.Sel.Name == "Size" || n.Sel.Name == "FullSize") {
						used = append(used, "e2e")
					}
					used = append(used, "."+n.Sel.Name)
					ast.Inspect(n.X, visit)
					return false
				case *ast.Ident:
					used = append(used, n.Name)
				}
				return true
			}
			ast.Inspect(declaration, visit)
			for _, name := range declared(declaration) {
				uses[name] = append(uses[name], used...)
				if leftOut(file) && isTest(name) {
					uses[name] = append(uses[name], "e2e")
				}
			}
		}
	}
	reached := map[string]bool{"e2e": true}
	for before := 0; before < len(reached); {
		before = len(reached)
		for name, used := range uses {
			if slices.ContainsFunc(used, func(u string) bool { return reached[u] }) {
				reached[name] = true
			}
		}
	}
	for name := range reached {
		if isTest(name) {
			tests = append(tests, name)
		}
	}
	slices.Sort(tests)
	return tests
}

func isTest(name string) bool {
	return slices.ContainsFunc([]string{"Test", "Fuzz", "Example"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// declared returns the names of a function, or of variables and constants. The name of a method begins with a dot, because no type is
// known where it is called.
func declared(declaration ast.Decl) (names []string) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return []string{"." + d.Name.Name}
		}
		return []string{d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if values, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range values.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// leftOut reports whether this program builds a file, with the tag e2e, that `make test` does not build: it has the race detector instead.
func leftOut(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if expression, err := constraint.Parse(comment.Text); err == nil && comment.Pos() < file.Package {
				builtWith := func(setting string) bool {
					return expression.Eval(func(tag string) bool { return slices.Contains([]string{setting, runtime.GOOS, runtime.GOARCH}, tag) })
				}
				return builtWith("e2e") && !builtWith("race")
			}
		}
	}
	return false
}
