package console

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"petgate/shared/operate"
)

// showDeprecated shows the keys that call deprecated operations.
func (c *Console) showDeprecated(w http.ResponseWriter, r *http.Request, v *visit) error {
	ctx := operate.WithAdminTLS(r.Context(), c.cfg.AdminTLS)
	// The database adds up all calls for every page, so a cursor would save nothing: after is the number of rows to skip.
	from, err := strconv.Atoi(r.URL.Query().Get("after"))
	if err != nil || from < 0 {
		from = 0
	}
	var operations []string
	calls, err := readPage(r, func(most int) (views []operate.DeprecatedView, err error) {
		views, operations, err = v.operator.ViewDeprecated(ctx, from, most)
		from += most - 1
		return views, err
	}, func(operate.DeprecatedView) string { return strconv.Itoa(from) }, func(d operate.DeprecatedView) operate.DeprecatedView { return d })
	if err != nil {
		return c.cannotAsk(w, v, err)
	}
	if isData, err := c.sendData(w, r, v, "deprecated", calls.views, calls.next); isData {
		return err
	}
	shown := list{
		Caption: "Keys that call deprecated operations", Columns: []column{"Operation", "Tenant", "Key", "Name", "#Last 7 days", "#Trend", "Ends in"},
		None: "No key has called a deprecated operation in the last 14 days.",
		Cure: "Deprecated: " + operate.OrDash(strings.Join(operations, ", ")) + ".",
	}
	for _, d := range calls.views {
		shown.Rows = append(shown.Rows, []cell{
			{Text: d.Operation},
			{Text: d.Tenant, Link: tenantPath(d.TenantID)},
			{Text: d.Key, Link: keyPath(d.Key)},
			quoted(d.KeyName),
			{Text: humanize.Comma(d.Requests)},
			{Text: d.Trend()},
			{Text: d.EndsIn()},
		})
	}
	return c.show(w, v, http.StatusOK, "deprecated", "Deprecated operations", shown.paged(r, calls.next))
}
