package console

import (
	"net/http"

	"petgate/shared/keystore"
)

// overviewPage is the content of the first page.
type overviewPage struct {
	Live   overviewLive
	Bans   int
	Events []eventRow // the latest first
}

type eventRow struct{ At, Actor, Kind, Subject string }

const eventsShown = 10

func (c *Console) overview(w http.ResponseWriter, r *http.Request, v *visit) {
	page, err := c.readOverview(r, v)
	if err != nil {
		c.fail(w, v, err)
		return
	}
	c.show(w, v, http.StatusOK, "overview", "Overview", page)
}

func (c *Console) readOverview(r *http.Request, v *visit) (page overviewPage, err error) {
	ctx := r.Context()
	page.Live = c.watch.look()
	if page.Bans, err = v.store.CountBans(ctx); err != nil {
		return page, err
	}
	events, err := v.store.LatestEvents(ctx, eventsShown)
	for _, e := range events {
		page.Events = append(page.Events, eventRow{At: e.At.String(), Actor: e.Actor, Kind: e.Kind, Subject: subjectOf(e)})
	}
	return page, err
}

// subjectOf names what an event is about.
func subjectOf(e keystore.Event) string {
	switch {
	case !e.Key.IsZero():
		return e.Key.String()
	case !e.Tenant.IsZero():
		return e.Tenant.String()
	}
	return e.Plan
}
