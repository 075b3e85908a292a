package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"petgate/shared/keystore"
)

const livePath = Home + "live"

const (
	// liveEvery is how often a stream sends figures.
	liveEvery = 2 * time.Second
	// streamsMax is how many streams a gateway serves at once, and ownStreamsMax how many of one session. A browser needs one for each
	// visible page with live figures.
	streamsMax    = 16
	ownStreamsMax = 4
	// readWithin is how long a browser may take to read an event.
	readWithin = 10 * time.Second
)

// streams counts the open streams of each session. It is safe for concurrent use.
type streams struct {
	mu   sync.Mutex
	all  int
	each map[string]int
}

// add counts one more stream of a session (n is 1), unless there are too many, or one less (n is -1).
func (s *streams) add(session string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all+n > streamsMax || s.each[session]+n > ownStreamsMax {
		return false
	}
	if s.each == nil {
		s.each = map[string]int{}
	}
	s.all += n
	if s.each[session] += n; s.each[session] == 0 {
		delete(s.each, session)
	}
	return true
}

// live streams the figures of the overview as server-sent events (HTML, section 9.2), until the session ends, the browser closes the
// stream or the console is closed. It sends the same parts of the page that the overview has.
func (c *Console) live(w http.ResponseWriter, r *http.Request, v *visit) error {
	// A browser sends the cookie to every port of the host, for a page of any of them.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		http.Error(w, "Only pages of this console may open live figures.", http.StatusForbidden)
		return nil
	}
	if !c.streams.add(v.session.ID, 1) {
		http.Error(w, "Too many pages show live figures. Close some of them.", http.StatusServiceUnavailable)
		return nil
	}
	defer c.streams.add(v.session.ID, -1)
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
	if _, err = c.sessionOf(asking, c.cfg.Store, r); errors.Is(err, keystore.ErrNotFound) {
		return []byte("event: end\ndata: Your session has ended. Sign in again.\n\n"), true, nil
	}
	seen := c.watch.look()
	parts := map[string]string{"at": seen.At}
	for _, name := range []string{"now", "gateways", "problems"} {
		var part bytes.Buffer
		if err := c.pages["overview"].ExecuteTemplate(&part, "live-"+name, seen); err != nil {
			return nil, false, err
		}
		parts[name] = part.String()
	}
	data, err := json.Marshal(parts)
	return fmt.Appendf(nil, "event: figures\ndata: %s\n\n", data), false, err
}
