package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
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

// usageEvent is one event of an export.
type usageEvent struct {
	keystore.SealedUsage
	installation string
	customer     string // the receiver's name of the tenant
	metric       string
}

// id is the same whenever the event is exported, and differs from the IDs of all other events. It has at most 100 characters, like
// Stripe's identifiers, if the operation's name has at most 45.
func (e usageEvent) id() string {
	name := fmt.Sprintf("pgu_%s_%s_%s_%s", e.installation, e.Tenant, e.Hour.Time().Format("2006010215"), operate.OrDash(e.Operation))
	if e.Correction > 0 {
		name += fmt.Sprintf("_c%d", e.Correction)
	}
	return name
}

// ends is the end of the event's hour.
func (e usageEvent) ends() instant.Millis { return e.Hour.Add(time.Hour) }

// usageFormat is how events are written and sent.
type usageFormat struct {
	name        string
	contentType string
	batch       int // the most events in one request

	// appendLine appends the event as one line of a file.
	appendLine func(dst []byte, e usageEvent) []byte
	// body is a request with the given events.
	body func([]usageEvent) []byte
	// chargedOnly leaves out events without a charged request, because the format only says what is charged.
	chargedOnly bool
	oldest      time.Duration // an older hour is refused by the receiver; 0: never
	remembers   time.Duration // how long the receiver recognizes an event that it gets again; 0: always
	// known reports whether a response refuses a request because the receiver has got an event of it before. nil: it takes these again.
	known func(status int, body []byte) bool
}

var usageFormats = []usageFormat{
	{
		name: "cloudevents", contentType: "application/cloudevents-batch+json", batch: 500,
		appendLine: jsonLine(cloudEvent), body: jsonList(cloudEvent, "", ""),
	},
	{name: "csv", contentType: "text/csv; charset=utf-8; header=present", batch: 500, appendLine: csvLine, body: csvBody},
	{
		name: "stripe", contentType: "application/x-www-form-urlencoded", batch: 1, appendLine: jsonLine(stripeEvent), body: stripeForm,
		chargedOnly: true, oldest: 35 * day, remembers: day, known: knownToStripe,
	},
	{
		name: "lago", contentType: "application/json", batch: 100, appendLine: jsonLine(lagoEvent), body: jsonList(lagoEvent, `{"events":`, `}`),
		chargedOnly: true, known: knownToLago,
	},
}

func formatNames() []string {
	names := make([]string, len(usageFormats))
	for i, f := range usageFormats {
		names[i] = f.name
	}
	return names
}

func (f *usageFormat) UnmarshalText(text []byte) error {
	for _, known := range usageFormats {
		if known.name == string(text) {
			*f = known
			return nil
		}
	}
	return fmt.Errorf("%q is not a format: use cloudevents, csv, stripe or lago", text)
}

func (f usageFormat) skips(e usageEvent) bool { return f.chargedOnly && e.Charged == 0 }

// head is the beginning of a file.
func (f usageFormat) head() string {
	if f.name == "csv" {
		return csvHead
	}
	return ""
}

// identifierMax is the longest identifier that Stripe takes.
const identifierMax = 100

func (f usageFormat) isTooOld(e usageEvent, now instant.Millis) bool {
	return f.oldest > 0 && now.Sub(e.ends()) > f.oldest
}

// check returns an error for an event that the receiver would refuse.
func (f usageFormat) check(e usageEvent, now instant.Millis) error {
	if f.oldest == 0 {
		return nil
	}
	if f.isTooOld(e, now) {
		return fmt.Errorf("%s takes nothing that is older than %s, and %s is: use a later --since, and --skip if the receiver has a cursor", f.name, operate.Span(f.oldest), e.Hour)
	}
	if name := e.id(); len(name) > identifierMax {
		return fmt.Errorf("%s takes identifiers of at most %d characters: %s", f.name, identifierMax, name)
	}
	return nil
}

// encode encodes a value that cannot fail.
func encode(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("bug: encode an event: " + err.Error())
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func jsonLine(of func(usageEvent) any) func([]byte, usageEvent) []byte {
	return func(dst []byte, e usageEvent) []byte { return append(append(dst, encode(of(e))...), '\n') }
}

func jsonList(of func(usageEvent) any, before, after string) func([]usageEvent) []byte {
	return func(events []usageEvent) []byte {
		body := append([]byte(before), '[')
		for i, e := range events {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, encode(of(e))...)
		}
		return append(append(body, ']'), after...)
	}
}

// cloudEvent is an event as CloudEvents 1.0 describes it.
func cloudEvent(e usageEvent) any {
	type data struct {
		Operation  string `json:"operation"`
		Requests   int64  `json:"requests"`
		Charged    int64  `json:"charged"`
		Start      string `json:"start"`
		Correction int64  `json:"correction,omitempty"`
	}
	return struct {
		SpecVersion     string `json:"specversion"`
		ID              string `json:"id"`
		Source          string `json:"source"`
		Type            string `json:"type"`
		Subject         string `json:"subject"`
		Time            string `json:"time"`
		DataContentType string `json:"datacontenttype"`
		Data            data   `json:"data"`
	}{
		"1.0", e.id(), "/petgate/" + e.installation, "petgate.requests", e.customer, e.ends().String(), "application/json",
		data{e.Operation, e.Requests, e.Charged, e.Hour.String(), e.Correction},
	}
}

// stripeEvent has the members of a Stripe meter event.
func stripeEvent(e usageEvent) any {
	type payload struct {
		Customer string `json:"stripe_customer_id"`
		Value    string `json:"value"`
	}
	return struct {
		EventName  string  `json:"event_name"`
		Identifier string  `json:"identifier"`
		Timestamp  int64   `json:"timestamp"`
		Payload    payload `json:"payload"`
	}{e.metric, e.id(), int64(e.ends()) / 1000, payload{e.customer, strconv.FormatInt(e.Charged, 10)}}
}

// stripeForm is the form that Stripe's API takes.
func stripeForm(events []usageEvent) []byte {
	e := events[0]
	return []byte(url.Values{
		"event_name": {e.metric}, "identifier": {e.id()}, "timestamp": {strconv.FormatInt(int64(e.ends())/1000, 10)},
		"payload[stripe_customer_id]": {e.customer}, "payload[value]": {strconv.FormatInt(e.Charged, 10)},
	}.Encode())
}

// knownToStripe recognizes Stripe's response to an identifier that it has: only its text says so.
func knownToStripe(status int, body []byte) bool {
	return status == http.StatusBadRequest && bytes.Contains(body, []byte("event already exists with identifier"))
}

// knownToLago recognizes Lago's response to a transaction_id that it has. Of such a batch, it takes nothing.
func knownToLago(status int, body []byte) bool {
	return status == http.StatusUnprocessableEntity && bytes.Contains(body, []byte(`"transaction_id"`)) &&
		bytes.Contains(body, []byte(`"value_already_exist"`))
}

// lagoEvent has the members of a Lago event. Lago knows a tenant by the external ID of its subscription.
func lagoEvent(e usageEvent) any {
	type properties struct {
		Operation string `json:"operation"`
		Requests  int64  `json:"requests"`
		Charged   int64  `json:"charged"`
	}
	return struct {
		ID           string     `json:"transaction_id"`
		Subscription string     `json:"external_subscription_id"`
		Code         string     `json:"code"`
		Timestamp    int64      `json:"timestamp"`
		Properties   properties `json:"properties"`
	}{e.id(), e.customer, e.metric, int64(e.ends()) / 1000, properties{e.Operation, e.Requests, e.Charged}}
}

const csvHead = "id,start,tenant,customer,operation,correction,requests,charged\r\n"

func csvLine(dst []byte, e usageEvent) []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	w.UseCRLF = true
	// A buffer takes every line.
	_ = w.Write([]string{
		e.id(), e.Hour.String(), e.Tenant.String(), e.customer, e.Operation, strconv.FormatInt(e.Correction, 10),
		strconv.FormatInt(e.Requests, 10), strconv.FormatInt(e.Charged, 10),
	})
	w.Flush()
	return append(dst, out.Bytes()...)
}

func csvBody(events []usageEvent) []byte {
	body := []byte(csvHead)
	for _, e := range events {
		body = csvLine(body, e)
	}
	return body
}

// customers reads the file that names the receiver's customers. Without a file, it returns nil.
func (a *app) customers(ctx context.Context, path string) (map[id.Tenant]string, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read --customers: %w", err)
	}
	defer file.Close()
	customers := map[id.Tenant]string{}
	lines := csv.NewReader(file)
	lines.FieldsPerRecord = 2
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return customers, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read --customers: %s: %w", path, err)
		}
		tenant, err := a.store.Tenant(ctx, strings.TrimSpace(fields[0]))
		if errors.Is(err, keystore.ErrNotFound) {
			line, _ := lines.FieldPos(0)
			return nil, fmt.Errorf("read --customers: %s, line %d: there is no tenant %q", path, line, fields[0])
		}
		if err != nil {
			return nil, err
		}
		customers[tenant.ID] = strings.TrimSpace(fields[1])
	}
}
