package operators

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"petgate/shared/core/plan"
	"petgate/shared/operate"
	"petgate/shared/operate/declare"
	"petgate/shared/service"
)

// object is a JSON object.
type object = map[string]any

func described(kind, text string) object { return object{"type": kind, "description": text} }

// errorSchema describes the body of an error.
var errorSchema = object{
	"type":     "object",
	"required": []string{"code", "message", "status"},
	"properties": object{
		"code":    described("string", "For programs."),
		"message": described("string", "What is wrong and what to do, for people."),
		"status":  object{"type": "integer"},
		"details": object{
			"type":       "object",
			"properties": object{"field": described("string", "The argument that is wrong.")},
		},
	},
}

// Document returns the OpenAPI document of all calls. Each has x-keyadmin, the command that does
// the same, and x-role.
func Document() []byte {
	schemas := object{"Error": errorSchema}
	paths := object{}
	for i := range calls {
		c := &calls[i]
		methods, _ := paths[Root+c.path].(object)
		if methods == nil {
			methods = object{}
			paths[Root+c.path] = methods
		}
		methods[strings.ToLower(c.method)] = c.operation(schemas)
	}
	var text bytes.Buffer
	err := operate.WriteJSON(&text, object{
		"openapi": "3.0.3",
		"info": object{
			"title":   "Petgate, operators' API",
			"version": service.Version(),
			"description": "What keyadmin does, for programs. A list has a header Link with the address of its " +
				"next page. " +
				"Errors say what is wrong and what to do.",
		},
		"servers":  []object{{"url": "/"}},
		"security": []object{{"operator": []string{}}},
		"paths":    paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"operator": object{"type": "http", "scheme": "bearer"}},
		},
	})
	if err != nil {
		panic("bug: the document of the operators' API: " + err.Error())
	}
	return text.Bytes()
}

var wordBreak = regexp.MustCompile(`[^a-zA-Z]+`)

// operation describes a call.
func (c *call) operation(schemas object) object {
	o := object{
		"operationId": strings.Trim(wordBreak.ReplaceAllString(strings.ToLower(c.method)+c.path, "_"), "_"),
		"tags":        []string{strings.Split(c.path, "/")[1]},
		"summary":     c.summary,
		"x-keyadmin":  c.verb,
		"x-role":      c.role,
		"responses":   c.responses(schemas),
	}
	if parameters := c.parameters(schemas); len(parameters) > 0 {
		o["parameters"] = parameters
	}
	if body := c.body(schemas); body != nil {
		o["requestBody"] = body
	}
	return o
}

// parameters describes the arguments in the path, the query and the header.
func (c *call) parameters(schemas object) (all []object) {
	add := func(in string, f operate.Argument) {
		all = append(all, object{
			"name":        f.Name,
			"in":          in,
			"required":    in == "path" || f.IsRequired,
			"description": c.about(f),
			"schema":      schemaOf(f.Type, schemas),
		})
	}
	for _, f := range operate.ArgumentsOf(c.arguments) {
		switch {
		case c.inPath(f.Name):
			add("path", f)
		case !c.hasBody():
			add("query", f)
		}
	}
	for _, f := range c.common() {
		add("query", f)
	}
	if c.isOnce() {
		all = append(all, object{
			"name":        "Idempotency-Key",
			"in":          "header",
			"schema":      object{"type": "string", "minLength": 1, "maxLength": 255},
			"description": "Any text. The request makes its change once within a day, however often it is sent.",
		})
	}
	return all
}

// body describes the body of a request; nil: it has none.
func (c *call) body(schemas object) object {
	if c.declares {
		document := object{"schema": schemaOf(reflect.TypeFor[declare.Document](), schemas)}
		return object{
			"required":    true,
			"description": fmt.Sprintf("At most %d bytes.", documentBytesMax),
			"content":     object{"application/yaml": document, "application/json": document},
		}
	}
	members, required := object{}, []string{}
	for _, f := range operate.ArgumentsOf(c.arguments) {
		if c.inPath(f.Name) || !c.hasBody() {
			continue
		}
		schema := schemaOf(f.Type, schemas)
		schema["description"] = c.about(f)
		members[f.Name] = schema
		if f.IsRequired {
			required = append(required, f.Name)
		}
	}
	if len(members) == 0 {
		return nil
	}
	schema := object{"type": "object", "properties": members, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return object{"required": len(required) > 0, "content": jsonOf(schema)}
}

// responses describes what a call answers.
func (c *call) responses(schemas object) object {
	result := schemaOf(c.result, schemas)
	status := max(c.status, http.StatusOK)
	all := object{
		strconv.Itoa(status): object{"description": http.StatusText(status), "content": jsonOf(result)},
		"default": object{
			"description": "An error",
			"content":     jsonOf(object{"$ref": "#/components/schemas/Error"}),
		},
	}
	if c.changes {
		gateways := described("array", "Gateways that may not have applied the change.")
		gateways["items"] = object{"type": "string"}
		own := object{"type": "object", "properties": object{
			"unconfirmed":       gateways,
			"unconfirmedReason": described("string", "Why it is not confirmed, for people."),
		}}
		all["202"] = object{
			"description": "Done, and not confirmed by all gateways",
			"content":     jsonOf(object{"allOf": []object{result, own}}),
		}
	}
	return all
}

func jsonOf(schema object) object { return object{"application/json": object{"schema": schema}} }

func integers(from, to int64) object {
	return object{"type": "integer", "minimum": from, "maximum": to}
}

// schemaOf describes a type. Structs of results are components of their own.
func schemaOf(t reflect.Type, schemas object) object {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[operate.Limit]():
		return integers(1, plan.LimitMax)
	case reflect.TypeFor[operate.LimitChange]():
		return integers(0, plan.LimitMax)
	case reflect.TypeFor[rows]():
		return integers(1, rowsMax)
	case reflect.TypeFor[operate.MonthStarts]():
		return integers(1, plan.MonthStartsMax)
	case reflect.TypeFor[declare.Version]():
		return integers(1, 1)
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()) {
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		schema := schemaOf(t.Elem(), schemas)
		if _, isComponent := schema["$ref"]; !isComponent {
			schema["nullable"] = true
		}
		return schema
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), schemas)}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Struct:
		return componentOf(t, schemas)
	}
	return object{"type": "string"}
}

// componentOf adds the schema of a struct, unless it is there, and returns a reference to it.
func componentOf(t reflect.Type, schemas object) object {
	name := strings.TrimSuffix(t.Name(), "View")
	if t.PkgPath() == reflect.TypeFor[declare.Document]().PkgPath() {
		name = "Declared" + name
	}
	if schemas[name] == nil {
		properties, required := object{}, []string{}
		schemas[name] = object{} // so that a type that has itself ends here
		for _, m := range membersOf(t) {
			properties[m.Name] = schemaOf(m.Type, schemas)
			if m.IsRequired {
				required = append(required, m.Name)
			}
		}
		schema := object{"type": "object", "properties": properties, "required": required}
		schemas[name] = schema
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// membersOf lists the members of a type, in a document or in the JSON of a result.
func membersOf(t reflect.Type) []declare.Member {
	all := declare.Members(t)
	if len(all) > 0 {
		return all
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			all = append(all, declare.Member{StructField: f, Name: name, IsRequired: options == ""})
		}
	}
	return all
}
