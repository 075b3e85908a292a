package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"petgate/shared/api/code"
)

// ownPath returns where an own operation of the gateway stands that the pets' document has at the
// path.
func ownPath(prefix, path string) string {
	if prefix == "" {
		return path
	}
	return prefix + strings.TrimPrefix(path, "/v1")
}

// Reserved returns the paths of the gateway's own operations and pages.
func Reserved(prefix string) (paths []Pattern) {
	for _, path := range []string{
		"/v1/quota", "/v1/usage",
		"/docs", "/docs/" + string(Star), "/docs.md", "/llms.txt", "/favicon.ico", "/openapi.yaml", "/openapi.json",
	} {
		paths = append(paths, Pattern(ownPath(prefix, path)))
	}
	return paths
}

// reference is a reference to a component.
var reference = regexp.MustCompile(`#/components/(\w+)/([\w-]+)`)

// ownComponent begins the names of the components that addOwn adds to a document.
const ownComponent = "Petgate"

// addOwn adds the gateway's own operations to a document that does not have them. They are those of
// the pets' document, with the components that they refer to. All operations then need the
// gateway's key, whatever the document says of other keys.
func (l *loading) addOwn(a *API) {
	var source struct {
		Paths      map[string]json.RawMessage            `json:"paths"`
		Components map[string]map[string]json.RawMessage `json:"components"`
	}
	described := Pets()
	text, err := json.Marshal(described.Document)
	if err == nil {
		err = json.Unmarshal(text, &source)
	}
	if err != nil {
		panic("bug: " + err.Error())
	}
	own := map[string]any{"openapi": "3.0.3", "info": map[string]string{"title": "", "version": ""}}
	paths, components := map[string]json.RawMessage{}, map[string]map[string]json.RawMessage{}
	var copyReferred func(text json.RawMessage)
	add := func(kind, name string) {
		if components[kind] == nil {
			components[kind] = map[string]json.RawMessage{}
		}
		if _, isThere := components[kind][ownComponent+name]; !isThere {
			components[kind][ownComponent+name] = source.Components[kind][name]
			copyReferred(source.Components[kind][name])
		}
	}
	copyReferred = func(text json.RawMessage) {
		for _, found := range reference.FindAllSubmatch(text, -1) {
			add(string(found[1]), string(found[2]))
		}
	}
	add("securitySchemes", "key")
	for _, o := range described.Operations {
		if o.ByGateway {
			paths[ownPath(l.ownPrefix, o.Path)] = source.Paths[o.Path]
			copyReferred(source.Paths[o.Path])
			o.Path = ownPath(l.ownPrefix, o.Path)
			a.Operations = append(a.Operations, o)
		}
	}
	own["paths"], own["components"] = paths, components
	text, err = json.Marshal(own)
	var from *openapi3.T
	if err == nil {
		from, err = openapi3.NewLoader().LoadFromData(
			reference.ReplaceAll(text, []byte("#/components/$1/"+ownComponent+"$2")),
		)
	}
	if err != nil {
		panic("bug: " + err.Error())
	}
	codes := from.Components.Schemas[ownComponent+"ErrorCode"].Value
	codes.Enum = slices.DeleteFunc(codes.Enum, func(name any) bool { return code.IsOfPets(fmt.Sprint(name)) })
	to := a.Document
	for path, item := range from.Paths.Map() {
		for _, o := range item.Operations() {
			delete(o.Extensions, "x-codeSamples") // they use the clients of the pets' document
		}
		to.Paths.Set(path, item)
	}
	if to.Components == nil {
		to.Components = &openapi3.Components{}
	}
	copyAll(&to.Components.Schemas, from.Components.Schemas)
	copyAll(&to.Components.Headers, from.Components.Headers)
	copyAll(&to.Components.Responses, from.Components.Responses)
	to.Components.SecuritySchemes = from.Components.SecuritySchemes
	to.Security = openapi3.SecurityRequirements{{ownComponent + "key": []string{}}}
	for _, o := range a.Operations {
		one := to.Paths.Value(o.Path).GetOperation(o.Method)
		one.Security = nil
		if o.IsPublic {
			one.Security = openapi3.NewSecurityRequirements()
		}
	}
	a.Source = sync.OnceValue(func() []byte {
		value, err := to.MarshalYAML()
		var written []byte
		if err == nil {
			written, err = yaml.Marshal(value)
		}
		if err != nil {
			panic("bug: " + err.Error()) // it was read from JSON, or could be
		}
		return written
	})
}

func copyAll[M ~map[string]V, V any](to *M, from M) {
	if *to == nil {
		*to = M{}
	}
	maps.Copy(*to, from)
}

// CheckPrefix returns an error if the gateway's own paths cannot have the prefix.
func CheckPrefix(prefix string) error {
	p, wrong := pattern(prefix)
	hasParameter := strings.Contains(string(p), string(Star))
	if wrong != "" || hasParameter || strings.HasSuffix(prefix, "/") || string(p) != prefix {
		return fmt.Errorf("%q is not the beginning of a path: use /name", prefix)
	}
	return nil
}
