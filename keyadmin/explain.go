package main

import (
	"context"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/operate"
)

type usageExplain struct {
	Of reference `arg:"" optional:"" name:"key-or-tenant" help:"The key's ID, key_…, or the tenant's ID or name (default: the key of a token read from standard input)."`
	operate.NextCall
}

func (c *usageExplain) Run(ctx context.Context, a *app, operator operate.Operator) error {
	call := c.NextCall
	switch {
	case c.Of == "":
		token, err := a.token()
		if err != nil {
			return err
		}
		call.Token = string(token)
	case strings.HasPrefix(string(c.Of), id.KeyPrefix):
		if err := call.Key.UnmarshalText([]byte(c.Of)); err != nil {
			return err
		}
	default:
		call.Tenant = string(c.Of)
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
