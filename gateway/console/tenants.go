package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/dustin/go-humanize"

	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/keystore/lists"
	"petgate/shared/keystore/sessions"
	"petgate/shared/operate"
)

const tenantsPath = Home + "tenants"

func tenantPath(id string) string { return Home + "tenants/" + url.PathEscape(id) }

// tenantsPage is the content of the page of all tenants.
type tenantsPage struct {
	Filter     url.Values // the fields of the filter, as they were sent
	IsFiltered bool
	Total      string // a sentence
	List       list
	Plans      []string
}

func (c *Console) showTenants(w http.ResponseWriter, r *http.Request, v *visit) error {
	ctx, query := r.Context(), r.URL.Query()
	search := strings.TrimSpace(query.Get("search"))
	if key, err := id.ParseKey(search); err == nil {
		http.Redirect(w, r, keyPath(key.String()), http.StatusSeeOther)
		return nil
	}
	of, found, err := find(r, v, operate.FindTenants{})
	if err != nil {
		return err
	}
	page := tenantsPage{Filter: query, IsFiltered: of != operate.FindTenants{Newest: of.Newest}}
	plans, err := v.operator.Plans(ctx)
	if err != nil {
		return err
	}
	page.Plans = sortedNames(plans)
	page.List = c.tenantList(ctx, v, found.Views)
	if page.IsFiltered {
		page.List.None, page.List.Cure, page.List.Command = "There is no such tenant.", "", ""
	}
	if search != "" {
		page.List.None = "No tenant has “" + search + "” in its name, and none has this ID."
	}
	all, err := lists.Of(v.store).CountTenants(ctx, lists.TenantFilter{})
	if err != nil {
		return err
	}
	selected, err := lists.Of(v.store).CountTenants(ctx, of.Filter())
	if err != nil {
		return err
	}
	page.Total = humanize.Comma(int64(selected)) + " of " + operate.Plural(int64(all), "tenant") + "."
	page.List = page.List.paged(r, found.Next)
	return c.show(w, v, http.StatusOK, "tenants", "Tenants", page)
}

// tenantList returns the rows of tenants with their use.
func (c *Console) tenantList(ctx context.Context, v *visit, tenants []operate.TenantView) list {
	l := list{
		Caption: "Tenants",
		Columns: []column{
			{Title: "Name"},
			{Title: "Plan"},
			{Title: "Status"},
			{"Per minute", numbers},
			{"Used now", numbers},
			{"Per day", numbers},
			{"Used today", numbers},
			{"Per month", numbers},
			{"Used this month", numbers},
			{Title: "Created"},
		},
		None: "There are no tenants.",
		Cure: operate.Either(v.session.Role.Allows(sessions.RoleAdmin), "Create the first one above, or "+
			"run", "To create one, run"),
		Command: "keyadmin tenant create NAME",
	}
	canAsk := true
	for _, t := range tenants {
		var use quota.Verdict
		if canAsk {
			// If the quotas cannot be read for one tenant, they are not asked for the others: each
			// question could take its whole time.
			var err error
			use, err = c.cfg.Quota(ctx, t.Owner.ID)
			canAsk = err == nil || errors.Is(err, ErrUnknownTenant)
		}
		limits := t.LimitTexts()
		l.Rows = append(l.Rows, []cell{
			{Text: t.Name, Link: tenantPath(t.ID)},
			{Text: t.Plan},
			tenantStatus(t),
			{Text: limits[0]},
			sharePart(use.Usages[quota.Minute]),
			{Text: limits[1]},
			sharePart(use.Usages[quota.Day]),
			{Text: limits[2]},
			sharePart(use.Usages[quota.Month]),
			v.when(t.Owner.CreatedAt, "-"),
		})
	}
	return l
}

// sharePart is a cell with the used part of a limit in per cent. It is a dash without a limit, or
// if the use is not known.
func sharePart(u quota.Usage) cell {
	if u.Limit <= 0 {
		return cell{Text: "-"}
	}
	percent := u.Used * 100 / u.Limit
	return cell{Text: humanize.Comma(percent) + " %", Bar: partOf(u.Used, u.Limit), Level: levelOf(percent)}
}
