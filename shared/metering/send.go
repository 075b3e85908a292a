package metering

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
)

const (
	sendTimeout = 30 * time.Second
	sendTries   = 5
	pauseMin    = time.Second
	pauseMax    = time.Minute // also if Retry-After says more
	quotedMax   = 200         // bytes of a response in an error message
)

// batchMax is the most events in one request. A variable, because tests have few events.
var batchMax = 500

// Receiver takes events. Its cursor moves after each response which says that they are taken, so an
// export that was interrupted continues there. The receiver may get the last batch again, with the
// same IDs.
type Receiver struct {
	URL    string
	Token  string // sent as Authorization: Bearer; empty: none
	Sleep  func(context.Context, time.Duration) error
	Say    func(text string) // what it waits for; may be nil
	Cursor usage.Cursor
	known  bool // it has a cursor: an export has been sent to it before

	export *Export
	client http.Client
}

// FindReceiver finds the cursor of a receiver.
func FindReceiver(ctx context.Context, store *keystore.Store, url string) (*Receiver, error) {
	cursor, known, err := usage.Of(store).Cursor(ctx, url)
	return &Receiver{URL: url, Sleep: operate.Sleep, Cursor: cursor, known: known, client: http.Client{
		Timeout: sendTimeout,
		// A redirect is a failure: the events and the token are for this address only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, err
}

// Send sends what the receiver has not got yet. A receiver without a cursor begins at the export's
// first hour.
func (r *Receiver) Send(ctx context.Context, e *Export) error {
	defer r.client.CloseIdleConnections()
	r.export = e
	if r.known {
		e.Since = r.Cursor.Hour
	} else {
		r.Cursor.Since, r.Cursor.Hour = e.Since, e.Since
		if err := usage.Of(e.Store).AddCursor(ctx, r.Cursor); err != nil {
			return err
		}
	}
	err := e.hours(ctx, r.Cursor.Tenant, nil, batchMax, func(rows []usage.Sealed) error {
		if err := r.post(ctx, rows); err != nil {
			return err
		}
		last := len(rows) - 1
		if len(rows) == batchMax { // its last tenant may have more
			last = slices.IndexFunc(rows, func(u usage.Sealed) bool { return u.Tenant == rows[last].Tenant }) - 1
		}
		if last < 0 {
			return nil
		}
		return r.move(ctx, rows[last].Hour, rows[last].Tenant, r.Cursor.Seal)
	})
	if err != nil {
		return err
	}
	if r.Cursor.Hour < e.Until {
		if err := r.move(ctx, e.Until, id.Tenant{}, r.Cursor.Seal); err != nil {
			return err
		}
	}
	if e.Until < e.Seal.Through { // corrections of later hours would come before these hours
		return nil
	}
	e.Since = r.Cursor.Since
	after := usage.Sealed{Correction: r.Cursor.Seal}
	send := func(rows []usage.Sealed) error { return r.sendCorrections(ctx, rows) }
	if err := e.corrections(ctx, after, batchMax, send); err != nil {
		return err
	}
	return r.move(ctx, r.Cursor.Hour, r.Cursor.Tenant, e.Seal.Number)
}

// sendCorrections sends corrections in batches; those of one batch have the same number. Before
// each batch, the cursor says that all smaller numbers are sent.
func (r *Receiver) sendCorrections(ctx context.Context, rows []usage.Sealed) error {
	for len(rows) > 0 {
		number, n := rows[0].Correction, 1
		for n < len(rows) && rows[n].Correction == number {
			n++
		}
		if err := r.move(ctx, r.Cursor.Hour, r.Cursor.Tenant, number); err != nil {
			return err
		}
		if err := r.post(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (r *Receiver) move(ctx context.Context, hour instant.Millis, tenant id.Tenant, seal int64) error {
	next := r.Cursor
	next.Hour, next.Tenant, next.Seal = hour, tenant, seal
	if err := usage.Of(r.export.Store).MoveCursor(ctx, r.Cursor, next); err != nil {
		return err
	}
	r.Cursor = next
	return nil
}

// post sends rows in one request.
func (r *Receiver) post(ctx context.Context, rows []usage.Sealed) error {
	events := make([]event, len(rows))
	for i, row := range rows {
		events[i] = r.export.event(row)
	}
	if err := r.request(ctx, r.export.Format.body(events)); err != nil {
		return err
	}
	for _, row := range rows {
		r.export.add(row)
	}
	return nil
}

// request sends one request. It tries again if the receiver may take it later.
func (r *Receiver) request(ctx context.Context, body []byte) error {
	pause := pauseMin
	for try := 1; ; try++ {
		wait, err := r.try(ctx, body)
		if err == nil || wait < 0 || try == sendTries {
			return err
		}
		wait = max(wait, pause)
		if r.Say != nil {
			r.Say(fmt.Sprintf("%v: next try in %s", err, operate.Span(wait)))
		}
		if err := r.Sleep(ctx, wait); err != nil {
			return err
		}
		pause *= 2
	}
}

// try sends one request once. If it fails, wait is how long to wait before the next try; negative:
// another try is of no use.
func (r *Receiver) try(ctx context.Context, body []byte) (wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	request.Header.Set("Content-Type", forms[r.export.Format].contentType)
	request.Header.Set("User-Agent", "petgate-keyadmin")
	sum := sha256.Sum256(body) // a request with other events has another key
	request.Header.Set("Idempotency-Key", hex.EncodeToString(sum[:]))
	if r.Token != "" {
		request.Header.Set("Authorization", "Bearer "+r.Token)
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return 0, nil
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, quotedMax)) // what is missing matters only to the message
	err = fmt.Errorf("POST %s: %s: %s", r.URL, response.Status, operate.Printable(string(bytes.TrimSpace(said))))
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode < 500 {
		return -1, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // a date or nothing: 0
	return time.Duration(max(0, min(seconds, int(pauseMax.Seconds())))) * time.Second, err
}
