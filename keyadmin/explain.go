package main

import (
	"context"
	"errors"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

type usageExplain struct {
	Of        explained `arg:"" optional:"" name:"key-or-tenant" help:"The key's ID, key_…, or the tenant's ID or name (default: the key of a token read from standard input)."`
	From      address   `placeholder:"ADDRESS" help:"The client's address, for keys with an allow-list."`
	Operation string    `placeholder:"ID" help:"The operation, as openapi.yaml names it: listPets, createPet."`
}

// explained is the key or the tenant that a request is made with. The zero value is none.
type explained struct {
	key    keyArgument // zero: the tenant
	tenant string
}

func (e *explained) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("it is empty: leave it out to read a token from standard input")
	}
	if !strings.HasPrefix(string(text), id.KeyPrefix) {
		e.tenant = string(text)
		return nil
	}
	return e.key.UnmarshalText(text)
}

func (c *usageExplain) Run(ctx context.Context, a *app, _ *keystore.Store) error {
	e, err := c.explain(ctx, a)
	var unknown operate.UnknownOperationError
	if errors.As(err, &unknown) {
		return usageErrorf("there is no operation %q%s; all operations: %s", unknown.Operation,
			didYouMean(unknown.Operation, unknown.Known), strings.Join(unknown.Known, ", "))
	}
	if err != nil {
		return err
	}
	var t table
	for _, row := range e.Sheet() {
		t.rows = append(t.rows, row[:])
	}
	return a.print(e, t)
}

func (c *usageExplain) explain(ctx context.Context, a *app) (e operate.Explanation, err error) {
	from := c.From.Addr
	switch {
	case c.Of == (explained{}):
		token, err := a.token()
		if err != nil {
			return e, err
		}
		return a.operator.ExplainToken(ctx, token, from, c.Operation)
	case c.Of.tenant == "":
		k, err := a.key(ctx, c.Of.key.Key)
		if err != nil {
			return e, err
		}
		return a.operator.Explain(ctx, k.Key, from, c.Operation)
	case from.IsValid() || c.Operation != "":
		return e, usageErrorf("--from and --operation are for a key: its allow-list and its scopes decide")
	}
	t, err := a.tenant(ctx, c.Of.tenant)
	if err != nil {
		return e, err
	}
	return a.operator.ExplainTenant(ctx, t)
}
