// Package api has the document of the public interface and the parts of it that the programs use: the operations, and the body of
// every error.
//
// The document describes every status and header that the system sends; tests check the running system against it.
package api

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"petgate/shared/core/apikey"
)

//go:embed openapi.yaml
var pets []byte

// API is what one document says. Nothing in it may be changed.
type API struct {
	Name       string // of the document, for messages
	Title      string
	Version    string
	Hash       string // the beginning of the document's SHA-256: 12 hexadecimal digits
	Source     []byte // the document as text
	Document   *openapi3.T
	Operations []Operation // ordered by path and method
}

// Operation is one operation of the document.
type Operation struct {
	ID           string    // operationId
	Method       string    // in capitals
	Path         string    // template, as in /v1/pets/{petId}
	Scope        string    // that a key needs; empty: none
	Upstream     string    // the name of the upstreams that serve it; empty: the default
	DeprecatedAt time.Time // zero = not deprecated
	SunsetAt     time.Time // from this instant on it is gone; zero = never
	Successor    string    // path of what replaces it; empty = nothing
	ByGateway    bool      // the gateway itself answers it; without a scope: for every valid key
	Stability    string    // experimental or beta; empty = stable

	// TakesKey means that a request with the header KeyHeader may be sent again, whether the first one succeeded or not.
	TakesKey bool
}

// IsReport reports whether the gateway itself answers the operation for every valid key. It then has no scope and is not charged.
func (o Operation) IsReport() bool { return o.ByGateway && o.Scope == "" }

// KeyHeader names a request that a client may repeat (IETF draft-ietf-httpapi-idempotency-key-header).
const KeyHeader = "Idempotency-Key"

// Pets returns the API of the pet service, whose document is a part of the programs.
func Pets() *API {
	a, err := Load("openapi.yaml", pets)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return a
}

// Load reads a document. The name is for messages.
func Load(name string, data []byte) (*API, error) {
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, fmt.Errorf("api: load %s: %w", name, err)
	}
	sum := sha256.Sum256(data)
	a := &API{
		Name: name, Title: doc.Info.Title, Version: doc.Info.Version, Hash: hex.EncodeToString(sum[:6]), Source: data, Document: doc,
	}
	a.Operations, err = operations(doc)
	return a, err
}

func operations(doc *openapi3.T) ([]Operation, error) {
	var all []Operation
	for path, item := range doc.Paths.Map() {
		for method, described := range item.Operations() {
			o := Operation{
				ID: described.OperationID, Method: method, Path: path,
				TakesKey: described.Parameters.GetByInAndName(openapi3.ParameterInHeader, KeyHeader) != nil,
			}
			if err := o.extend(described.Extensions); err != nil {
				return nil, fmt.Errorf("api: %s: %w", o.ID, err)
			}
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b Operation) int {
		return slices.Compare([]string{a.Path, a.Method}, []string{b.Path, b.Method})
	})
	return all, nil
}

// extend reads the x-… members of an operation.
func (o *Operation) extend(extensions map[string]any) (err error) {
	for name, value := range extensions {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%s is not a string", name)
		}
		switch name {
		case "x-scope":
			_, err = apikey.ParseScopes([]string{text})
			o.Scope = text
		case "x-deprecated-at":
			o.DeprecatedAt, err = time.Parse(time.RFC3339, text)
		case "x-sunset":
			o.SunsetAt, err = time.Parse(time.RFC3339, text)
		case "x-successor":
			o.Successor = text
		case "x-answered-by":
			if o.ByGateway = text == "gateway"; !o.ByGateway {
				err = fmt.Errorf("%q is not gateway", text)
			}
		case "x-stability":
			if o.Stability = text; text != "experimental" && text != "beta" {
				err = fmt.Errorf("%q is neither experimental nor beta", text)
			}
		default:
			err = fmt.Errorf("no such extension")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if o.Scope == "" && !o.ByGateway {
		return fmt.Errorf("x-scope is missing: an operation without one would be open to every key")
	}
	return nil
}
