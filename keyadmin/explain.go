package main

import (
	"context"
	"errors"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/operate"
)

type usageExplain struct {
	Of explained `arg:"" optional:"" name:"key-or-tenant" help:"The key's ID, key_…, or the tenant's ID or name (default: the key of a token read from standard input)."`
	operate.NextCall
}

// explained is the key or the tenant that a request is made with. The zero value is none.
type explained struct {
	key    operate.KeyID // zero: the tenant
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

func (c *usageExplain) Run(ctx context.Context, a *app, operator operate.Operator) error {
	call := c.NextCall
	call.Key, call.Tenant = c.Of.key, c.Of.tenant
	if c.Of == (explained{}) {
		token, err := a.token()
		if err != nil {
			return err
		}
		call.Token = string(token)
	}
	e, err := call.Explain(ctx, operator)
	if err != nil {
		return err
	}
	var t table
	for _, row := range e.Sheet() {
		t.rows = append(t.rows, row[:])
	}
	return a.print(e, t)
}
