package api

import (
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestOperationsRefuse(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"x-scope: pets:write", "x-scope: pets", "createPet: x-scope"},
		{"x-scope: pets:write", "x-stability: beta", "x-scope is missing"},
		{"x-scope: pets:write", "x-stability: shaky", "x-stability"},
		{"x-scope: pets:write", "x-colour: red", "x-colour"},
		{"x-answered-by: gateway\n", "x-answered-by: petsvc\n", "getQuota: x-answered-by"},
		{"x-sunset: '2030-12-05T00:00:00Z'", "x-sunset: '5 December 2030'", "getPet: x-sunset"},
		{"x-sunset: '2030-12-05T00:00:00Z'", "x-sunset: 2030", "not a string"},
	} {
		text := strings.Replace(string(pets), c.old, c.new, 1)
		doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if all, err := operations(doc); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %q: %v, %v; want an error about %q", c.new, all, err, c.want)
		}
	}
}

func TestOperationsReadStability(t *testing.T) {
	text := strings.Replace(string(pets), "x-scope: pets:write", "x-scope: pets:write\n      x-stability: beta", 1)
	doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	all, err := operations(doc)
	if err != nil {
		t.Fatal(err)
	}
	if got := all[1].Stability; got != "beta" {
		t.Errorf("the stability of %s is %q", all[1].ID, got)
	}
}
