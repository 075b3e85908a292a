package service

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// Described is a struct of settings whose help is written where a reader of the code looks for it:
// the first paragraph of the comment above a field is the help of its flag.
type Described interface {
	Source() string // the Go file that declares the struct, embedded in the program
}

// describe gives each flag the comment of its field. A flag with a help tag keeps that.
func describe(target any, flags []*kong.Flag) {
	comments := map[field]string{}
	collectComments(reflect.ValueOf(target).Elem(), comments)
	for _, flag := range flags {
		if flag.Help == "" {
			flag.Help = comments[fieldOf(flag.Target)]
		}
	}
}

// field is a field of the settings. The type tells a struct from its own first field.
type field struct {
	address uintptr
	kind    reflect.Type
}

func fieldOf(v reflect.Value) field { return field{v.Addr().Pointer(), v.Type()} }

// collectComments collects the comments of the fields of a struct, and of the structs in it.
func collectComments(settings reflect.Value, comments map[field]string) {
	var ofFields map[string]string
	if described, ok := settings.Addr().Interface().(Described); ok {
		ofFields = fieldComments(described.Source(), settings.Type().Name())
	}
	for f, v := range settings.Fields() {
		if !f.IsExported() {
			continue
		}
		if comment := ofFields[f.Name]; comment != "" {
			comments[fieldOf(v)] = comment
		}
		if v.Kind() == reflect.Struct {
			collectComments(v, comments)
		}
	}
}

// fieldComments returns the first paragraphs of the comments above the fields of a struct.
func fieldComments(source, structName string) map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		panic("bug: the source of " + structName + ": " + err.Error())
	}
	comments := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		declared, isType := n.(*ast.TypeSpec)
		if !isType {
			return true
		}
		if fields, isStruct := declared.Type.(*ast.StructType); isStruct && declared.Name.Name == structName {
			for _, f := range fields.Fields.List {
				first, _, _ := strings.Cut(f.Doc.Text(), "\n\n")
				for _, name := range f.Names {
					comments[name.Name] = strings.Join(strings.Fields(first), " ")
				}
			}
		}
		return false
	})
	return comments
}
