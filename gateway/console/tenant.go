package console

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/plan"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

// tenantPage is the content of the page of one tenant.
type tenantPage struct {
	operate.TenantView
	Sheet  list
	Used   string // a sentence about use that is not known exactly; empty: there is nothing to say
	Keys   list
	Usage  usagePart
	Plans  []string
	Scopes []string      // that a new key may have
	Has    apikey.Scopes // that it has if nothing else is chosen
	Once   string        // names the form of a new key
}

func (c *Console) showTenant(w http.ResponseWriter, r *http.Request, v *visit) error {
	ctx := r.Context()
	_, keys, err := find(r, v, operate.FindKeys{})
	if err != nil {
		return err
	}
	t, err := v.operator.Tenant(ctx, r.PathValue("tenant"))
	if err != nil {
		return err
	}
	plans, err := v.operator.Plans(ctx)
	if err != nil {
		return err
	}
	scopes, has, err := scopesOf(ctx, v, "")
	if err != nil {
		return err
	}
	page := tenantPage{
		TenantView: t.View(), Plans: sortedNames(plans), Scopes: scopes, Has: has, Once: rand.Text(),
		Keys: keyList(v, keys.Views).paged(r, keys.Next),
	}
	page.Sheet, page.Used = c.tenantSheet(ctx, v, t)
	page.Usage = c.usageOf(ctx, v.operator, t.ID, id.Key{}, r.URL.Query().Get("usage"), t.Limits)
	return c.show(w, v, http.StatusOK, "tenant", "Tenant "+t.Name, page)
}

// tenantSheet returns the facts of a tenant, and a sentence about use that is not known exactly.
func (c *Console) tenantSheet(ctx context.Context, v *visit, t operate.Owner) (sheet list, used string) {
	view := t.View()
	var use quota.Verdict
	if t.Limits.IsSet() {
		ctx, cancel := context.WithTimeout(ctx, databaseWithin/2) // the rest of the time is for the database
		defer cancel()
		var err error
		if use, err = c.cfg.Quota(ctx, t.ID); err != nil {
			use, used = quota.Verdict{}, "How much it has used cannot be read: "+err.Error()+"."
		} else if use.Degraded {
			left := int64(plan.LimitMax)
			for _, u := range use.Usages {
				if u.Limit != 0 {
					left = min(left, u.Remaining)
				}
			}
			used = "Redis is away: this gateway admits " + humanize.Comma(left) + " more of its share."
		}
	}
	sheet = list{Caption: "This tenant", Rows: [][]cell{
		{{Text: "Status"}, tenantStatus(view)},
		{{Text: "Plan"}, {Text: view.Plan, Link: tenantsPath + "?plan=" + url.QueryEscape(view.Plan)}},
	}}
	titles := [...]string{
		"Used, last 60 s", "Used today (UTC)", fmt.Sprintf("Used this month (from day %d, UTC)", view.MonthStarts),
	}
	for i, limit := range view.LimitTexts() {
		sheet.Rows = append(sheet.Rows, []cell{{Text: "Requests per " + plan.Policies[i]}, {Text: limit}},
			[]cell{{Text: titles[i]}, usedPart(use.Usages[i])})
	}
	sheet.Rows = append(sheet.Rows, []cell{{Text: "Created"}, v.when(t.CreatedAt, "-")},
		[]cell{{Text: "ID"}, {Text: view.ID}})
	return sheet, used
}

// usedPart is a cell with the used part of a limit. Without a limit, it is a dash.
func usedPart(u quota.Usage) cell {
	c := sharePart(u)
	if u.Limit == 0 {
		return c
	}
	c.Text = fmt.Sprintf("%s of %s (%s)", humanize.Comma(u.Used), humanize.Comma(u.Limit), c.Text)
	return c
}

func tenantStatus(t operate.TenantView) cell { return status(t.Status(), t.Status() == "active") }

func keyList(v *visit, keys []operate.KeyView) list {
	l := list{
		Caption: "Keys of the tenant",
		Columns: titled("ID", "Name", "Status", "Token ends in", "Environment", "Expires", "Last used"),
		None:    "This tenant has no keys.", Cure: v.ifMay(sessions.RoleKeys, "Create its first one above."),
	}
	for _, k := range keys {
		l.Rows = append(l.Rows, []cell{
			{Text: k.ID, Link: keyPath(k.ID)},
			quoted(k.Name),
			keyStatus(k),
			{Text: k.Hint},
			{Text: k.Environment},
			v.whenText(k.ExpiresAt, "never"),
			v.whenText(k.LastUsedAt, "never"),
		})
	}
	return l
}

func keyStatus(k operate.KeyView) cell { return status(k.Status, k.Status == "active") }

func sortedNames(plans operate.Plans) []string { return slices.Sorted(maps.Keys(plans)) }
