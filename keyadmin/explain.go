package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/operate"
)

type usageExplain struct {
	Key       explained `arg:"" optional:"" help:"The key's ID, key_… (default: the key of a token read from standard input)."`
	From      address   `placeholder:"ADDRESS" help:"The client's address, for keys with an allow-list."`
	Operation string    `placeholder:"ID" help:"The operation, as openapi.yaml names it: listPets, createPet."`
}

func (usageExplain) Help() string {
	return `Says whether a request with the key would be admitted, and if not, why and until when. It reads the key from the database
and the tenant's usage from a registered gateway. It does not count as a request.

The exit status is 0 whether the request would pass or not, and 1 if no gateway responds.

Examples:

    # By token, or by the key's ID
    keyadmin usage explain < ci.token
    keyadmin usage explain key_0123456789abcdef

    # May this client add a pet?
    keyadmin usage explain key_0123456789abcdef --from 203.0.113.5 --operation createPet`
}

// explained is the ID of a key. The quota is a tenant's, but a request is made with a key.
type explained keyArgument

func (e *explained) UnmarshalText(text []byte) error {
	err := (*keyArgument)(e).UnmarshalText(text)
	if err != nil {
		err = fmt.Errorf("%w; `keyadmin usage show TENANT` shows the usage of a tenant", err)
	}
	return err
}

// address is a client's address.
type address netip.Addr

func (a *address) UnmarshalText(text []byte) error {
	parsed, err := netip.ParseAddr(string(text))
	if err != nil || parsed.Zone() != "" {
		return fmt.Errorf("%q is not an address: use 203.0.113.5 or 2001:db8::1", text)
	}
	*a = address(parsed.Unmap())
	return nil
}

func (c *usageExplain) Run(ctx context.Context, a *app) error {
	var token []byte
	if id.Key(c.Key).IsZero() {
		var err error
		if token, err = a.token(); err != nil {
			return err
		}
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	e, err := c.explain(ctx, a, token)
	var unknown operate.UnknownOperationError
	if errors.As(err, &unknown) {
		return usageErrorf("there is no operation %q%s; all operations: %s", unknown.Operation,
			didYouMean(unknown.Operation, unknown.Known), strings.Join(unknown.Known, ", "))
	}
	if err != nil {
		return err
	}
	return a.print(e, explanationSheet(e))
}

func (c *usageExplain) explain(ctx context.Context, a *app, token []byte) (operate.Explanation, error) {
	if len(token) > 0 {
		return a.operator.ExplainToken(ctx, token, netip.Addr(c.From), c.Operation)
	}
	_, k, err := a.findKey(ctx, id.Key(c.Key))
	if err != nil {
		return operate.Explanation{}, err
	}
	return a.operator.Explain(ctx, k, netip.Addr(c.From), c.Operation)
}

func explanationSheet(e operate.Explanation) table {
	var t table
	for _, row := range e.Sheet() {
		t.rows = append(t.rows, row[:])
	}
	return t
}
