package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// explainPage is the content of the page that says whether the next call with a key would pass.
type explainPage struct {
	Key, From, Operation string
	Problem              string // of the form
	Passes               bool
	Sheet                list // without rows: nothing was asked yet
}

// explain explains for the key whose ID the query has.
func (c *Console) explain(w http.ResponseWriter, r *http.Request, v *visit) error {
	field := func(name string) string { return strings.TrimSpace(r.URL.Query().Get(name)) }
	page := explainPage{Key: field("key"), From: field("from"), Operation: field("operation")}
	show := func(status int) error { return c.show(w, v, status, "explain", "Would the next call pass?", page) }
	if page.Key == "" {
		return show(http.StatusOK)
	}
	call, err := readArguments(r, url.Values{"key": {page.Key}, "from": {page.From}, "operation": {page.Operation}},
		operate.NextCall{})
	var e operate.Explanation
	if err == nil {
		e, err = call.Explain(operate.WithAdminTLS(r.Context(), c.cfg.AdminTLS), v.operator)
	}
	page.Problem = mistakeIn(err)
	switch {
	case page.Problem != "":
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

// cannotAsk writes the page that says why a gateway or the database could not be asked.
func (c *Console) cannotAsk(w http.ResponseWriter, v *visit, err error) error {
	if errors.Is(err, keystore.ErrNotFound) || errors.Is(err, keystore.ErrUnavailable) || database.IsDenied(err) {
		return err
	}
	return c.say(w, v, http.StatusServiceUnavailable, "There is no answer",
		"The page of gateways shows which of them are silent. The error: "+err.Error()+".")
}
