package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"petgate/shared/operate"
)

// deprecatedCalls are the keys that call deprecated operations.
type deprecatedCalls struct {
	views      []operate.DeprecatedView
	operations []string
}

// deprecatedMax is how many keys are read.
const deprecatedMax = 10 * dataRows

func (c *Console) readDeprecated(ctx context.Context) (found deprecatedCalls, err error) {
	found.views, found.operations, err = operate.Operator{Store: c.cfg.Store, Clock: c.cfg.Clock}.ViewDeprecated(ctx, 0, deprecatedMax)
	return found, err
}

// showDeprecated shows the keys that call deprecated operations. In the address, after is the number of rows to skip.
func (c *Console) showDeprecated(w http.ResponseWriter, r *http.Request, v *visit) error {
	patience, cancel := context.WithTimeout(r.Context(), figuresWithin)
	defer cancel()
	isProgram := r.URL.Query().Get("format") != ""
	if isProgram { // it does not load the page again
		patience = r.Context()
	}
	found, known, err := c.outdated.look(c.ctx, patience)
	if isProgram && known.IsZero() {
		err = cmp.Or(err, errors.New("the calls are still being added up"))
	}
	if err != nil {
		return c.cannotAsk(w, v, err)
	}
	from, err := strconv.Atoi(r.URL.Query().Get("after"))
	if err != nil || from < 0 {
		from = 0
	}
	calls, err := readPage(r, func(most int) (views []operate.DeprecatedView, err error) {
		views = found.views[min(from, len(found.views)):min(from+most, len(found.views))]
		from += most - 1
		return views, nil
	}, func(operate.DeprecatedView) string { return strconv.Itoa(from) }, func(d operate.DeprecatedView) operate.DeprecatedView { return d })
	if err != nil {
		return err
	}
	if isData, err := c.sendData(w, r, v, "deprecated", calls.views, calls.next); isData {
		return err
	}
	shown := list{
		Caption: "Keys that call deprecated operations", Columns: []column{"Operation", "Tenant", "Key", "Name", "#Last 7 days", "#Trend", "Ends in"},
		None: "No key has called a deprecated operation in the last 14 days.",
		Cure: "Deprecated: " + operate.OrDash(strings.Join(found.operations, ", ")) + ".",
	}
	if known.IsZero() {
		w.Header().Set("Refresh", "2")
		shown.None, shown.Cure = "The calls are being added up. This page loads itself again.", ""
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
