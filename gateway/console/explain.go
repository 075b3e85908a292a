package console

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"petgate/shared/core/id"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// explainPage is the content of the page that says whether the next call with a key would pass. It never has the token.
type explainPage struct {
	Key, From, Operation string
	Problem              string // of the form
	Passes               bool
	Sheet                list // without rows: nothing was asked yet
	MayPaste             bool // a token: a session that is read-only can send no form
}

// explain explains for the key whose ID the query has, or for the key of a token. An ID is not secret, so it may be in an address. A
// token comes in a form, so it is in no address and no log.
func (c *Console) explain(w http.ResponseWriter, r *http.Request, v *visit) error {
	values, isForm := r.URL.Query(), !isRead(r)
	token := strings.TrimSpace(r.PostFormValue("token"))
	if isForm {
		values = r.PostForm
	}
	field := func(name string) string { return strings.TrimSpace(values.Get(name)) }
	page := explainPage{From: field("from"), Operation: field("operation"), MayPaste: v.session.Role.Allows(keystore.RoleKeys)}
	if hasToken(url.Values{"": {page.From, page.Operation}}) {
		return c.say(w, v, http.StatusBadRequest, "This field is not for a token", "Paste the token into its own field. It is not repeated here.")
	}
	show := func(status int) error { return c.show(w, v, status, "explain", "Would the next call pass?", page) }
	if !isForm {
		if page.Key = field("key"); page.Key == "" {
			return show(http.StatusOK)
		}
	}
	e, err := page.ask(operate.WithAdminTLS(r.Context(), c.cfg.AdminTLS), v, token)
	unknown, mistake := operate.UnknownOperationError{}, formError{}
	switch {
	case errors.As(err, &unknown):
		page.Problem = unknown.Error() + "."
		return show(http.StatusBadRequest)
	case errors.As(err, &mistake):
		page.Problem = mistake.text
		return show(http.StatusBadRequest)
	case err != nil:
		return c.cannotAsk(w, v, err)
	}
	page.Passes, page.Sheet.Caption = e.Passes, "The explanation"
	for _, row := range e.Sheet() {
		text := cell{Text: row[1]}
		switch {
		case row[1] == e.KeyID:
			text.Link = keyPath(e.KeyID)
		case row[0] == "Tenant":
			text.Link = tenantPath(e.TenantID)
		}
		page.Sheet.Rows = append(page.Sheet.Rows, []cell{{Text: row[0]}, text})
	}
	return show(http.StatusOK)
}

// ask explains what would happen to a request with the page's key or, without one, with the token.
func (p explainPage) ask(ctx context.Context, v *visit, token string) (e operate.Explanation, err error) {
	var from netip.Addr
	if p.From != "" {
		if from, err = netip.ParseAddr(p.From); err != nil || from.Zone() != "" {
			return e, formError{"Client's address: use 203.0.113.5 or 2001:db8::1."}
		}
	}
	if p.Key == "" {
		if token == "" {
			return e, formError{"Token: paste one, or ask with the ID of a key."}
		}
		return v.operator.ExplainToken(ctx, []byte(token), from.Unmap(), p.Operation)
	}
	id, err := id.ParseKey(p.Key)
	if err != nil {
		return e, formError{"Key: " + err.Error() + "."}
	}
	k, err := v.store.Key(ctx, id)
	if err != nil {
		return e, err
	}
	return v.operator.Explain(ctx, k, from.Unmap(), p.Operation)
}

// cannotAsk writes the page that says why a gateway or the database could not be asked.
func (c *Console) cannotAsk(w http.ResponseWriter, v *visit, err error) error {
	if errors.Is(err, keystore.ErrNotFound) || errors.Is(err, keystore.ErrUnavailable) || database.IsDenied(err) {
		return err
	}
	return c.say(w, v, http.StatusServiceUnavailable, "There is no answer", "The page of gateways shows which of them are silent. The error: "+err.Error()+".")
}
