package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

func keyPath(id string) string { return Home + "keys/" + url.PathEscape(id) }

// keyPage is the content of the page of one key.
type keyPage struct {
	operate.KeyView
	Sheet    list
	Usage    usagePart
	Scopes   []string // that it may have
	Has      apikey.Scopes
	Lines    string // the allow-list, a block a line
	HasEnded bool
	IsBanned bool

	IsEditable bool // its terms can be changed. A later expiry makes an expired key valid again
}

// scopesOf returns the scopes that a new key may have, and those that a key has.
func scopesOf(ctx context.Context, v *visit, has apikey.Scopes) ([]string, apikey.Scopes, error) {
	known, _, err := v.store.Scopes(ctx)
	names := slices.Concat(known.Names(), []string{apikey.UsageRead}, has.Names())
	slices.Sort(names)
	return slices.Compact(names), known, err
}

func (c *Console) showKey(w http.ResponseWriter, r *http.Request, v *visit) error {
	key, err := id.ParseKey(r.PathValue("key"))
	if err != nil {
		return fmt.Errorf("%w: %w", keystore.ErrNotFound, err)
	}
	t, k, err := v.operator.Key(r.Context(), key)
	if err != nil {
		return err
	}
	ban, err := v.operator.Ban(r.Context(), k.ID)
	if err != nil {
		return err
	}
	view := operate.ViewKey(k, t, ban.Until, v.operator.Now())
	page := keyPage{
		KeyView:    view,
		Has:        k.Scopes,
		Lines:      strings.Join(view.Allow, "\n"),
		IsBanned:   ban.Until != 0,
		IsEditable: k.RevokedAt == 0 && k.GraceEndsAt == 0,
		HasEnded:   slices.Contains(endedStates, view.Status),
	}
	if page.Scopes, _, err = scopesOf(r.Context(), v, k.Scopes); err != nil {
		return err
	}
	page.Sheet = list{Caption: "This key", Rows: [][]cell{
		{{Text: "Name"}, quoted(view.Name)},
		{{Text: "Tenant"}, {Text: view.Tenant, Link: tenantPath(view.TenantID)}},
		{{Text: "Status"}, keyStatus(view)},
		{{Text: "Last used"}, v.when(k.LastUsedAt, "never")},
		{{Text: "Last refused"}, v.whenText(view.LastRefusedAt, "never")},
		{{Text: "Expires"}, v.when(k.ExpiresAt, "never")},
		{{Text: "Environment"}, {Text: view.Environment}},
		{{Text: "Token ends in"}, {Text: view.Hint}},
		{{Text: "Scopes"}, {Text: strings.Join(view.Scopes, " ")}},
		{{Text: "Allowed from"}, {Text: operate.Anywhere(view.Allow)}},
		{{Text: "Own limits"}, {Text: operate.OrDash(view.OwnLimits())}},
		{{Text: "Created"}, v.when(k.CreatedAt, "-")},
		{{Text: "Revoked"}, v.when(k.RevokedAt, "never")},
		{{Text: "Disabled"}, v.when(k.DisabledAt, "never")},
	}}
	page.Usage = c.usageOf(r.Context(), v.operator, t.ID, k.ID, r.URL.Query().Get("usage"), plan.Limits{})
	if view.ReplacedBy != "" {
		page.Sheet.Rows = append(page.Sheet.Rows,
			[]cell{{Text: "Replaced by"}, {Text: view.ReplacedBy, Link: keyPath(view.ReplacedBy)}})
	}
	if page.IsBanned {
		page.Sheet.Rows = append(page.Sheet.Rows, []cell{{Text: "Banned by"}, {Text: ban.By}},
			[]cell{{Text: "Banned because"}, quoted(ban.Reason)}, []cell{{Text: "Told the tenant"}, quoted(ban.Notice)})
	}
	return c.show(w, v, http.StatusOK, "key", "Key "+view.ID, page)
}
