// Package api has what an OpenAPI document says of an API: its operations, and who may call them.
// The document of the pet service is a part of the programs; a gateway can load any other. The
// package also has the body of every error.
//
// The pets' document describes every status and header that the system sends; tests check the
// running system against it.
package api

import (
	_ "embed"
	"slices"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed openapi.yaml
var pets []byte

// API is what one document says. Nothing in it may be changed.
type API struct {
	Name       string // of the document, for messages
	Title      string
	Version    string
	Hash       string        // the beginning of the document's SHA-256: 12 hexadecimal digits
	Source     func() []byte // the document that clients get, as YAML; it is written at the first call
	Document   *openapi3.T   // the same; its paths are complete, so its only server is "/"
	Operations []Operation   // in the order of their patterns, then by method
	OwnPrefix  string        // of the gateway's own paths; empty: they stand where the pets' document has them
}

// Operation is one operation of the document.
type Operation struct {
	ID           string    // operationId; without one, the method and the path
	Method       string    // in capitals
	Path         string    // template, as in /v1/pets/{petId}
	Scope        string    // that a key needs; empty: none
	Upstream     string    // the name of the upstreams that serve it; empty: the default
	IsPublic     bool      // it needs no key
	IsDeprecated bool      // DeprecatedAt may be zero all the same
	DeprecatedAt time.Time // zero = unknown, or not deprecated
	SunsetAt     time.Time // from this instant on it is gone; zero = never
	Successor    string    // path of what replaces it; empty = nothing
	ByGateway    bool      // the gateway itself answers it; without a scope: for every valid key
	Stability    string    // experimental or beta; empty = stable
	Cost         int64     // of a request, in units of the limits; 0: the document does not say, so it is 1

	// TakesKey means that a request with the header KeyHeader may be sent again, whether the first
	// one succeeded or not.
	TakesKey bool
}

// IsReport reports whether the gateway itself answers the operation for every valid key. It then
// has no scope and is not charged.
func (o Operation) IsReport() bool { return o.ByGateway && o.Scope == "" }

// KeyHeader names a request that a client may repeat (IETF
// draft-ietf-httpapi-idempotency-key-header).
const KeyHeader = "Idempotency-Key"

// Scopes returns the scopes of the operations that upstreams serve, in the order of the operations.
func (a *API) Scopes() (scopes []string) {
	for _, o := range a.Operations {
		if !o.ByGateway && o.Scope != "" && !slices.Contains(scopes, o.Scope) {
			scopes = append(scopes, o.Scope)
		}
	}
	return scopes
}

// Costs returns the costs of operations that are not 1, by their IDs.
func (a *API) Costs() map[string]int64 {
	costs := map[string]int64{}
	for _, o := range a.Operations {
		if o.Cost > 1 {
			costs[o.ID] = o.Cost
		}
	}
	return costs
}

// Pets returns the API of the pet service.
func Pets() *API {
	readPets.Do(func() {
		var err error
		petsAPI, err = Load("openapi.yaml", pets)
		if err != nil {
			panic("bug: " + err.Error())
		}
	})
	return petsAPI
}

var (
	readPets sync.Once
	petsAPI  *API
)
