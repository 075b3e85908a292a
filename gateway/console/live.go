package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"petgate/shared/keystore"
)

const livePath = Home + "live"

const (
	// liveEvery is how often a stream sends figures.
	liveEvery = 2 * time.Second
	// streamsMax is how many streams a gateway serves at once. A browser needs one for each visible page with live figures.
	streamsMax = 16
	// readWithin is how long a browser may take to read an event.
	readWithin = 10 * time.Second
)

// live streams the figures of the overview as server-sent events (HTML, section 9.2), until the session ends, the browser closes the
// stream or the console is closed. It sends the same parts of the page that the overview has.
func (c *Console) live(w http.ResponseWriter, r *http.Request, _ *visit) error {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		http.Error(w, "Too many pages show live figures. Close some of them.", http.StatusServiceUnavailable)
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	// The admin port limits the time of a request, as a whole and for reading it. A stream takes longer.
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		c.cfg.Log.Warn("console: a stream cannot begin", "error", err)
		http.Error(w, "Live figures cannot be sent.", http.StatusInternalServerError)
		return nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(c.watch.every)
	defer tick.Stop()
	for {
		event, isLast, err := c.nextEvent(ctx, r)
		if err != nil {
			c.cfg.Log.Error("console: live figures cannot be written", "error", err)
			return nil
		}
		if ctx.Err() != nil || control.SetWriteDeadline(time.Now().Add(readWithin)) != nil {
			return nil
		}
		if _, err := w.Write(event); err != nil || control.Flush() != nil || isLast {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// nextEvent returns a server-sent event with the figures, or the last one if the session has ended. While the database cannot be asked
// for the session, the stream goes on: the figures say that it cannot be read.
func (c *Console) nextEvent(ctx context.Context, r *http.Request) (event []byte, isLast bool, err error) {
	asking, cancel := context.WithTimeout(ctx, databaseWithin)
	defer cancel()
	if _, err = sessionOf(asking, c.cfg.Store, r); errors.Is(err, keystore.ErrNotFound) {
		return []byte("event: end\ndata: Your session has ended. Sign in again.\n\n"), true, nil
	}
	seen := c.watch.look()
	parts := map[string]string{"at": seen.At}
	for _, name := range []string{"gateways", "problems"} {
		var part bytes.Buffer
		if err := c.pages["overview"].ExecuteTemplate(&part, "live-"+name, seen); err != nil {
			return nil, false, err
		}
		parts[name] = part.String()
	}
	data, err := json.Marshal(parts)
	return fmt.Appendf(nil, "event: figures\ndata: %s\n\n", data), false, err
}
