package console

import (
	"net/http"

	"petgate/shared/keystore"
)

// overviewPage is the content of the first page.
type overviewPage struct {
	Live   overviewLive
	Bans   int
	Events list // the latest first
}

const eventsShown = 10

func (c *Console) overview(w http.ResponseWriter, r *http.Request, v *visit) (err error) {
	ctx, page := r.Context(), overviewPage{Live: c.watch.look()}
	if page.Bans, err = v.store.CountBans(ctx); err != nil {
		return err
	}
	events, err := v.store.FindEvents(ctx, keystore.EventFilter{}, 0, eventsShown)
	if err != nil {
		return err
	}
	if page.Events, err = eventList(ctx, v.store, events); err != nil {
		return err
	}
	page.Events.Caption = "Latest changes"
	page.Events.None, page.Events.Cure = "Nothing was changed so far.", "The page of tenants creates the first tenant."
	return c.show(w, v, http.StatusOK, "overview", "Overview", page)
}
