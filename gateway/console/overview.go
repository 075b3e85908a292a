package console

import (
	"context"
	"errors"
	"net/http"

	"petgate/shared/keystore"
)

// overviewPage is the content of the first page.
type overviewPage struct {
	Live   overviewLive
	IsAway bool // the database is: only Live is known
	Bans   int
	Events list // the latest first
}

const eventsShown = 10

func (c *Console) overview(w http.ResponseWriter, r *http.Request, v *visit) error {
	page := overviewPage{Live: c.watch.look()}
	err := page.read(r.Context(), v.store)
	if page.IsAway = errors.Is(err, keystore.ErrUnavailable) && !v.hasLeft(); err != nil && !page.IsAway {
		return err
	}
	return c.show(w, v, http.StatusOK, "overview", "Overview", page)
}

func (p *overviewPage) read(ctx context.Context, store *keystore.Store) (err error) {
	if p.Bans, err = store.CountBans(ctx); err != nil {
		return err
	}
	events, err := store.FindEvents(ctx, keystore.EventFilter{}, 0, eventsShown)
	if err != nil {
		return err
	}
	p.Events, err = eventList(ctx, store, events)
	p.Events.Caption = "Latest changes"
	p.Events.None, p.Events.Cure = "Nothing was changed so far.", "The page of tenants creates the first tenant."
	return err
}
