package console

import (
	"net/http"
)

// overviewPage is the content of the first page.
type overviewPage struct {
	Live   overviewLive
	Bans   int
	Events list // the latest first
}

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
	if err != nil {
		return page, err
	}
	page.Events, err = eventList(ctx, v.store, events)
	page.Events.Caption = "Latest changes"
	page.Events.None, page.Events.Cure = "Nothing was changed so far.", "The page of tenants creates the first tenant."
	return page, err
}
