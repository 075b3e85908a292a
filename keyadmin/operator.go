package main

import (
	"context"

	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

type operatorCommands struct {
	Create operatorCreate `cmd:"" help:"Issue a token of the operators' API; it is shown once."`
	List   operatorList   `cmd:"" help:"List who may use the operators' API."`
	Revoke operatorRevoke `cmd:"" help:"End a token at once and permanently."`
}

// operatorView is a token of the operators' API as JSON; scripts rely on its fields.
type operatorView struct {
	Name      string        `json:"name"`
	Token     string        `json:"token,omitempty"` // only of a new one
	Role      sessions.Role `json:"role"`
	Status    string        `json:"status"`
	CreatedAt string        `json:"createdAt"`
	ExpiresAt string        `json:"expiresAt,omitempty"`
}

func (a *app) viewOperator(o sessions.OperatorToken) operatorView {
	return operatorView{
		Name: o.Name, Role: o.Role, CreatedAt: o.CreatedAt.String(), ExpiresAt: o.ExpiresAt.String(),
		Status: operate.Either(o.ExpiresAt != 0 && o.ExpiresAt <= a.now(), "expired", "active"),
	}
}

type operatorCreate struct {
	Name    operate.Name   `arg:"" help:"Who uses the token, such as terraform. Its changes are in the audit log as operator:NAME."`
	Role    sessions.Role  `required:"" placeholder:"ROLE" help:"What it may do: read; keys: also change keys and bans; admin: everything."`
	Expires operate.Moment `placeholder:"WHEN" help:"When the token expires: after 90d or 1w, or at a UTC date, 2026-12-31 (default: never)."`
}

func (c *operatorCreate) Run(ctx context.Context, a *app, operator operate.Operator) error {
	expiresAt, err := c.Expires.After(a.now())
	if err != nil {
		return usageErrorf("--expires: %v", err)
	}
	token, made, err := sessions.Of(operator.Store).CreateOperator(ctx,
		sessions.OperatorToken{Name: string(c.Name), Role: c.Role, ExpiresAt: expiresAt})
	if err != nil {
		return err
	}
	v := a.viewOperator(made)
	v.Token = token
	a.note("Created a token with role %s for operator %s. It is not shown again.", v.Role, v.Name)
	return a.printSecret(v, token)
}

type operatorList struct{}

func (operatorList) Run(ctx context.Context, a *app, operator operate.Operator) error {
	operators, err := sessions.Of(operator.Store).Operators(ctx)
	if err != nil {
		return err
	}
	t := table{
		head:  []string{"NAME", "ROLE", "STATUS", "CREATED", "EXPIRES"},
		spare: []string{"CREATED"},
		none:  "The operators' API has no tokens. The first: `keyadmin operator create NAME --role read`",
	}
	return printViews(a, operate.ViewsOf(operators, a.viewOperator), t, func(v operatorView) []string {
		return []string{v.Name, string(v.Role), v.Status, v.CreatedAt, operate.Never(v.ExpiresAt)}
	})
}

type operatorRevoke struct {
	Name string `arg:"" help:"The operator's name."`
	asking
}

func (c *operatorRevoke) Run(ctx context.Context, a *app, operator operate.Operator) error {
	if err := a.ask(c.Yes, "Revoke the token of operator "+c.Name+"? It cannot be undone."); err != nil {
		return err
	}
	revoked, err := sessions.Of(operator.Store).RevokeOperator(ctx, c.Name)
	if err != nil {
		return err
	}
	a.note("Revoked the token of operator %s.", revoked.Name)
	if a.asData() {
		return a.print(a.viewOperator(revoked), table{})
	}
	return nil
}
