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

// showExplain explains for the key whose ID the query has. An ID is not secret, so it may be in an address; a token may not.
func (c *Console) showExplain(w http.ResponseWriter, r *http.Request, v *visit) error {
	query := r.URL.Query()
	page := explainPage{
		Key: strings.TrimSpace(query.Get("key")), From: strings.TrimSpace(query.Get("from")), Operation: strings.TrimSpace(query.Get("operation")),
		MayPaste: !v.session.ReadOnly,
	}
	if page.Key == "" {
		return c.show(w, v, http.StatusOK, "explain", "Would the next call pass?", page)
	}
	return c.explain(w, r, v, page, func(ctx context.Context, from netip.Addr) (e operate.Explanation, err error) {
		key, err := id.ParseKey(page.Key)
		if err != nil {
			return e, formError{"Key: " + err.Error() + "."}
		}
		k, err := v.store.Key(ctx, key)
		if err != nil {
			return e, err
		}
		return v.operator.Explain(ctx, k, from, page.Operation)
	})
}

// explainToken explains for the key of a token. The token comes in a form, so it is in no address and no log.
func (c *Console) explainToken(w http.ResponseWriter, r *http.Request, v *visit) error {
	token := strings.TrimSpace(r.PostFormValue("token"))
	page := explainPage{From: strings.TrimSpace(r.PostForm.Get("from")), Operation: strings.TrimSpace(r.PostForm.Get("operation")), MayPaste: true}
	if hasToken(url.Values{"": {page.From, page.Operation}}) {
		return c.say(w, v, http.StatusBadRequest, "This field is not for a token", "Paste the token into its own field. It is not repeated here.")
	}
	return c.explain(w, r, v, page, func(ctx context.Context, from netip.Addr) (e operate.Explanation, err error) {
		if token == "" {
			return e, formError{"Token: paste one, or ask with the ID of a key."}
		}
		return v.operator.ExplainToken(ctx, []byte(token), from, page.Operation)
	})
}

func (c *Console) explain(w http.ResponseWriter, r *http.Request, v *visit, page explainPage, find func(context.Context, netip.Addr) (operate.Explanation, error)) error {
	var from netip.Addr
	if page.From != "" {
		var err error
		if from, err = netip.ParseAddr(page.From); err != nil || from.Zone() != "" {
			page.Problem = "Client's address: use 203.0.113.5 or 2001:db8::1."
			return c.show(w, v, http.StatusBadRequest, "explain", "Would the next call pass?", page)
		}
	}
	e, err := find(operate.WithAdminTLS(r.Context(), c.cfg.AdminTLS), from.Unmap())
	if unknown := (operate.UnknownOperationError{}); errors.As(err, &unknown) {
		err = formError{unknown.Error() + "."}
	}
	if errors.As(err, new(formError)) {
		page.Problem = err.Error()
		return c.show(w, v, http.StatusBadRequest, "explain", "Would the next call pass?", page)
	}
	if err != nil {
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
	return c.show(w, v, http.StatusOK, "explain", "Would the next call pass?", page)
}

// cannotAsk writes the page for an error of a question to gateways, or of the database.
func (c *Console) cannotAsk(w http.ResponseWriter, v *visit, err error) error {
	if errors.Is(err, keystore.ErrNotFound) || errors.Is(err, keystore.ErrUnavailable) || database.IsDenied(err) {
		return err
	}
	return c.say(w, v, http.StatusServiceUnavailable, "There is no answer", "The page of gateways shows which of them are silent. The error: "+err.Error()+".")
}
