package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

const (
	sendTimeout = 30 * time.Second
	sendTries   = 5
	pauseMin    = time.Second
	pauseMax    = time.Minute // also if Retry-After says more

	answerMax = 64 << 10 // bytes of a response that are read
	quotedMax = 200      // bytes of a response in an error message
)

func isReceiver(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// receiver sends events. The cursor moves after each response which says that they are taken, now or before.
type receiver struct {
	*exporting
	client http.Client
	token  string
	cursor keystore.ExportCursor
}

// send sends what the receiver has not got yet.
func (e *exporting) send(ctx context.Context, cursor keystore.ExportCursor, known bool) error {
	r := &receiver{exporting: e, cursor: cursor, client: http.Client{
		Timeout: sendTimeout,
		// A redirect is a failure: the events and the token are for this address only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	defer r.client.CloseIdleConnections()
	if e.c.TokenFile != "" {
		text, err := os.ReadFile(e.c.TokenFile)
		if err != nil {
			return fmt.Errorf("read the receiver's token: %w", err)
		}
		r.token = strings.TrimSpace(string(text))
	}
	if e.c.Format.remembers > 0 && e.now().Sub(e.since) > e.c.Format.remembers {
		e.warn("%s recognizes a repeated event for %s only. If this export is interrupted, check what it has got before you repeat it.",
			e.c.Format.name, operate.Span(e.c.Format.remembers))
	}
	if err := r.begin(ctx, known); err != nil {
		return err
	}
	err := r.sendAll(ctx)
	e.progress.end()
	if err != nil {
		return fmt.Errorf("%w\n%s has got every hour before %s. Repeat the command to continue", err, e.c.To, r.cursor.Hour)
	}
	e.note("Sent %s events: %s requests, %s charged. %s has got every hour before %s.", count(e.events), count(e.requests), count(e.charged),
		e.c.To, r.cursor.Hour)
	return nil
}

// begin adds the cursor of a new receiver. With --skip, it moves that of a known one to a later --since.
func (r *receiver) begin(ctx context.Context, known bool) error {
	switch {
	case !known:
		// Corrections of hours that are sealed now are sent after these hours.
		return r.store.AddCursor(ctx, r.cursor)
	case r.since == r.cursor.Hour:
		return nil
	}
	r.warn("%s has got every hour before %s. It will get nothing more of the hours before %s.", r.c.To, r.cursor.Hour, r.since)
	next := r.cursor
	next.Since, next.Hour, next.Tenant = r.since, r.since, id.Tenant{}
	return r.moveTo(ctx, next)
}

func (r *receiver) sendAll(ctx context.Context) error {
	if err := r.each(ctx, r.cursor.Tenant, func(rows []keystore.SealedUsage) error { return r.sendPage(ctx, rows) }); err != nil {
		return err
	}
	if r.cursor.Hour < r.until {
		if err := r.move(ctx, r.until, id.Tenant{}, r.cursor.Seal); err != nil {
			return err
		}
	}
	if r.until < r.seal.Through { // corrections of later hours would come before these hours
		return nil
	}
	err := r.eachCorrection(ctx, max(1, r.cursor.Seal), r.seal.Number, r.cursor.Since, func(rows []keystore.SealedUsage) error {
		return r.sendCorrections(ctx, rows)
	})
	if err != nil {
		return err
	}
	return r.move(ctx, r.cursor.Hour, r.cursor.Tenant, r.seal.Number)
}

// sendCorrections sends corrections in batches of one number. When the first one of a number comes, all smaller numbers are sent.
func (r *receiver) sendCorrections(ctx context.Context, rows []keystore.SealedUsage) error {
	for len(rows) > 0 {
		number, n := rows[0].Correction, 1
		for n < min(len(rows), r.c.Format.batch) && rows[n].Correction == number {
			n++
		}
		if number > r.cursor.Seal {
			if err := r.move(ctx, r.cursor.Hour, r.cursor.Tenant, number); err != nil {
				return err
			}
		}
		if err := r.sendEvents(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// sendPage sends rows of one hour in batches of whole tenants.
func (r *receiver) sendPage(ctx context.Context, rows []keystore.SealedUsage) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && (n < r.c.Format.batch || rows[n].Tenant == rows[n-1].Tenant) {
			n++
		}
		// Not the tenant whose rows would not all fit.
		if n > r.c.Format.batch {
			first := n - 1
			for first > 0 && rows[first-1].Tenant == rows[n-1].Tenant {
				first--
			}
			if first > 0 {
				n = first
			}
		}
		if err := r.sendEvents(ctx, rows[:n]); err != nil {
			return err
		}
		if err := r.move(ctx, rows[n-1].Hour, rows[n-1].Tenant, r.cursor.Seal); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (r *receiver) move(ctx context.Context, hour instant.Millis, tenant id.Tenant, seal int64) error {
	next := r.cursor
	next.Hour, next.Tenant, next.Seal = hour, tenant, seal
	return r.moveTo(ctx, next)
}

func (r *receiver) moveTo(ctx context.Context, next keystore.ExportCursor) error {
	if err := r.store.MoveCursor(ctx, r.cursor, next); err != nil {
		return err
	}
	r.cursor = next
	return nil
}

// sendEvents sends rows in as few requests as the format allows.
func (r *receiver) sendEvents(ctx context.Context, rows []keystore.SealedUsage) error {
	var events []usageEvent
	for _, row := range rows {
		event, taken, err := r.event(row)
		if err != nil {
			return err
		}
		if taken {
			events = append(events, event)
		}
	}
	for len(events) > 0 {
		n := min(len(events), r.c.Format.batch)
		if err := r.post(ctx, events[:n]); err != nil {
			return err
		}
		for _, event := range events[:n] {
			r.count(event.SealedUsage)
		}
		events = events[n:]
	}
	return nil
}

// errKnown means that the receiver has refused a request because it has got an event of it before.
var errKnown = errors.New("the receiver has got an event of this request before")

// post sends events. A receiver that has got one of them before, because its response was lost, may have refused all of them: then it
// gets them one by one.
func (r *receiver) post(ctx context.Context, events []usageEvent) error {
	err := r.postTogether(ctx, events)
	switch {
	case !errors.Is(err, errKnown):
		return err
	case len(events) == 1:
		return nil
	}
	for i := range events {
		if err := r.post(ctx, events[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// postTogether sends one request. It tries again if the receiver may take it later. Errors: errKnown.
func (r *receiver) postTogether(ctx context.Context, events []usageEvent) error {
	body := r.c.Format.body(events)
	pause := pauseMin
	for try := 1; ; try++ {
		wait, err := r.try(ctx, body)
		if err == nil || wait < 0 || try == sendTries {
			return err
		}
		wait = min(max(wait, pause), pauseMax)
		r.progress.show("%v: next try in %s", err, operate.Span(wait))
		if err := r.Sleep(ctx, wait); err != nil {
			return err
		}
		pause *= 2
	}
}

// try sends one request once. If it fails, wait is how long to wait before the next try; negative: another try is of no use.
func (r *receiver) try(ctx context.Context, body []byte) (wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.c.To, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	request.Header.Set("Content-Type", r.c.Format.contentType)
	request.Header.Set("User-Agent", "petgate-keyadmin")
	sum := sha256.Sum256(body) // a request with other events has another key
	request.Header.Set("Idempotency-Key", hex.EncodeToString(sum[:]))
	if r.token != "" {
		request.Header.Set("Authorization", "Bearer "+r.token)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(response.Body, answerMax)) // what is missing matters only to known and to the message
	switch known := r.c.Format.known; {
	case response.StatusCode/100 == 2:
		return 0, nil
	case known != nil && known(response.StatusCode, said):
		return -1, errKnown
	}
	err = fmt.Errorf("POST %s: %s: %s", r.c.To, response.Status, operate.Printable(string(bytes.TrimSpace(said[:min(len(said), quotedMax)]))))
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode < 500 {
		return -1, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // a date or nothing: 0
	return time.Duration(max(0, min(seconds, int(pauseMax.Seconds())))) * time.Second, err
}

// exportProgress is a line on a terminal that is written again and again.
type exportProgress struct {
	app   *app
	shown time.Time // when the line was last written; zero: there is none
}

const progressEvery = 200 * time.Millisecond

func (p *exportProgress) show(format string, args ...any) {
	now := p.app.Clock()
	if !p.app.ErrTerminal || p.app.env["TERM"] == "dumb" || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	line := fmt.Sprintf(format, args...)
	if width := p.app.width(); width > 0 && len(line) >= width {
		line = line[:width-1]
	}
	fmt.Fprintf(p.app.Err, "\r\x1b[K%s", operate.Printable(line))
}

// end removes the line.
func (p *exportProgress) end() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.app.Err, "\r\x1b[K")
		p.shown = time.Time{}
	}
}
