package operators

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"petgate/shared/core/plan"
	"petgate/shared/operate"
	"petgate/shared/service"
)

// object is a JSON object.
type object = map[string]any

// Document returns the OpenAPI document of all calls. Each has x-keyadmin, the command that does
// the same, and x-role.
func Document() []byte {
	schemas := object{"Error": object{
		"type": "object", "required": []string{"code", "message", "status"},
		"properties": object{
			"code": object{
				"type":        "string",
				"description": "For programs.",
			}, "message": object{"type": "string", "description": "What is wrong and what to do, for people."},
			"status": object{
				"type": "integer",
			}, "details": object{"type": "object", "properties": object{"field": object{"type": "string", "description": "The argument that is wrong."}}},
		},
	}}
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
			"title": "Petgate, operators' API", "version": service.Version(),
			"description": "What keyadmin does, for programs. A list has a header Link with the address of its next page. Errors say what is wrong and what to do.",
		},
		"servers": []object{{"url": "/"}}, "security": []object{{"operator": []string{}}}, "paths": paths,
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
		"operationId": strings.Trim(
			wordBreak.ReplaceAllString(strings.ToLower(c.method)+c.path, "_"), "_",
		), "tags": []string{strings.Split(c.path, "/")[1]},
		"summary": c.summary, "x-keyadmin": c.verb, "x-role": c.role,
	}
	var parameters []object
	parameter := func(in string, f operate.Argument) {
		parameters = append(parameters, object{
			"name": f.Name, "in": in, "required": in == "path" || f.IsRequired, "description": c.about(f), "schema": schemaOf(f.Type, schemas),
		})
	}
	members, required := object{}, []string{}
	for _, f := range operate.ArgumentsOf(c.arguments) {
		switch {
		case c.inPath(f.Name):
			parameter("path", f)
		case c.hasBody():
			schema := schemaOf(f.Type, schemas)
			schema["description"] = c.about(f)
			members[f.Name] = schema
			if f.IsRequired {
				required = append(required, f.Name)
			}
		default:
			parameter("query", f)
		}
	}
	for _, f := range c.common() {
		parameter("query", f)
	}
	if c.changes && c.method == http.MethodPost {
		parameters = append(parameters, object{
			"name": "Idempotency-Key", "in": "header", "schema": object{"type": "string", "minLength": 1, "maxLength": 255},
			"description": "Any text. The request makes its change once within a day, however often it is sent.",
		})
	}
	if parameters != nil {
		o["parameters"] = parameters
	}
	if len(members) > 0 {
		schema := object{"type": "object", "properties": members, "additionalProperties": false}
		if len(required) > 0 {
			schema["required"] = required
		}
		o["requestBody"] = object{"required": len(required) > 0, "content": jsonOf(schema)}
	}
	result := schemaOf(c.result, schemas)
	status := max(c.status, http.StatusOK)
	responses := object{
		strconv.Itoa(status): object{"description": http.StatusText(status), "content": jsonOf(result)},
		"default": object{
			"description": "An error",
			"content":     jsonOf(object{"$ref": "#/components/schemas/Error"}),
		},
	}
	if c.changes {
		unconfirmed := object{"type": "object", "properties": object{"unconfirmed": object{
			"type": "array", "items": object{"type": "string"}, "description": "Gateways that may not have applied the change.",
		}}}
		responses["202"] = object{
			"description": "Done, and not confirmed by all gateways",
			"content":     jsonOf(object{"allOf": []object{result, unconfirmed}}),
		}
	}
	o["responses"] = responses
	return o
}

func jsonOf(schema object) object { return object{"application/json": object{"schema": schema}} }

// schemaOf describes a type. Structs of results are components of their own.
func schemaOf(t reflect.Type, schemas object) object {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case t == reflect.TypeFor[operate.Limit]():
		return object{"type": "integer", "minimum": 1, "maximum": plan.LimitMax}
	case t == reflect.TypeFor[operate.LimitChange]():
		return object{"type": "integer", "minimum": 0, "maximum": plan.LimitMax}
	case t == reflect.TypeFor[rows]():
		return object{"type": "integer", "minimum": 1, "maximum": rowsMax}
	case t == reflect.TypeFor[operate.MonthStarts]():
		return object{"type": "integer", "minimum": 1, "maximum": plan.MonthStartsMax}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		schema := schemaOf(t.Elem(), schemas)
		if _, isComponent := schema["$ref"]; isComponent {
			return schema
		}
		schema["nullable"] = true
		return schema
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), schemas)}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Struct:
		name := strings.TrimSuffix(t.Name(), "View")
		if schemas[name] == nil {
			schema := object{"type": "object"}
			schemas[name] = schema
			properties, required := object{}, []string{}
			for _, f := range reflect.VisibleFields(t) {
				member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				if member == "" || member == "-" {
					continue
				}
				properties[member] = schemaOf(f.Type, schemas)
				if options == "" {
					required = append(required, member)
				}
			}
			schema["properties"], schema["required"] = properties, required
		}
		return object{"$ref": "#/components/schemas/" + name}
	}
	return object{"type": "string"}
}
