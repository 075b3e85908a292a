package operators

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"reflect"

	"petgate/shared/keystore/usage"
	"petgate/shared/metering"
	"petgate/shared/operate"
)

// usageExport seals hours, like the command. That changes only how later usage of them is counted:
// as corrections.
var usageExport = call{
	method: get, path: "/usage/export", verb: "usage export", role: read, pages: true,
	summary: "Export the usage of live keys in closed hours, for billing: an event for each tenant, operation " +
		"and hour, and their corrections.",
	arguments: reflect.TypeFor[operate.UsagePeriod](), result: reflect.TypeFor[ExportView](), serve: exportUsage,
}

// ExportView is one page of an export.
type ExportView struct {
	Since string `json:"since"` // the first hour
	Until string `json:"until"` // the hours before are closed
	// why later hours are open, and where usage is missing, for people
	Missing []string                  `json:"missing"`
	Events  []metering.UsageEventView `json:"events"`
}

func exportUsage(_ *API, _ *http.Request, v *visit, arguments any) (answer, error) {
	now := v.operator.Now()
	since, until, err := arguments.(*operate.UsagePeriod).Of(now)
	if err != nil {
		return answer{}, err
	}
	after, err := v.afterEvent()
	if err != nil {
		return answer{}, err
	}
	e, err := metering.New(v.ctx, v.operator.Store, "", since, until)
	if err != nil {
		return answer{}, err
	}
	missing, err := e.Missing(v.ctx, now, min(now, until))
	if err != nil {
		return answer{}, err
	}
	rows, err := e.Page(v.ctx, after, v.limit+1)
	made := answer{}
	if len(rows) > v.limit {
		rows = rows[:v.limit]
		last := rows[v.limit-1]
		text, _ := json.Marshal(last) // numbers and texts: it cannot fail
		made.next = base64.RawURLEncoding.EncodeToString(text)
	}
	made.body = ExportView{
		e.Since.String(), max(e.Since, e.Until).String(), append([]string{}, missing...), operate.ViewsOf(rows, e.View),
	}
	return made, err
}

// afterEvent reads the event that a page begins after.
func (v *visit) afterEvent() (after usage.Sealed, err error) {
	if v.after == "" {
		return after, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(v.after)
	if err != nil || json.Unmarshal(text, &after) != nil {
		return after, operate.NoPage
	}
	return after, nil
}
