package metering

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"petgate/shared/keystore/usage"
)

// event is one event of an export.
type event struct {
	usage.Sealed
	installation string
}

// id is the same whenever the event is exported, and differs from the IDs of all other events.
func (e event) id() string {
	operation := e.Operation
	if operation == "" {
		operation = "-"
	}
	name := fmt.Sprintf("pgu_%s_%s_%s_%s", e.installation, e.Tenant, e.Hour.Time().Format("2006010215"), operation)
	if e.Correction > 0 {
		name += fmt.Sprintf("_c%d", e.Correction)
	}
	return name
}

// UsageEventView is an event as JSON; programs rely on its fields.
type UsageEventView struct {
	ID         string `json:"id"`
	Start      string `json:"start"` // of the hour
	TenantID   string `json:"tenantId"`
	Operation  string `json:"operation"`
	Correction int64  `json:"correction"`
	Requests   int64  `json:"requests"`
	Charged    int64  `json:"charged"`
	Units      int64  `json:"units"`
}

// View returns an event of the export.
func (e *Export) View(r usage.Sealed) UsageEventView {
	return UsageEventView{
		e.event(r).id(), r.Hour.String(), r.Tenant.String(), r.Operation, r.Correction, r.Requests, r.Charged, r.Units,
	}
}

// Format is how events are written.
type Format string

// The formats.
const (
	CloudEvents Format = "cloudevents" // CloudEvents 1.0 as JSON: one on each line of a file, a batch in a request
	CSV         Format = "csv"         // RFC 4180 with a head
)

var forms = map[Format]struct {
	contentType string // of a body
	head        string // the beginning of a file
	write       func(*bytes.Buffer, event)
}{
	CloudEvents: {"application/cloudevents-batch+json", "", cloudEvent},
	CSV: {
		"text/csv; charset=utf-8; header=present",
		"id,start,tenant,operation,correction,requests,charged,units\r\n",
		csvLine,
	},
}

// UnmarshalText reads the name of a format.
func (f *Format) UnmarshalText(text []byte) error {
	*f = Format(text)
	if _, known := forms[*f]; !known {
		return fmt.Errorf("%q is not a format: use cloudevents or csv", text)
	}
	return nil
}

// body is a request with events.
func (f Format) body(events []event) []byte {
	out := bytes.NewBufferString(forms[f].head)
	for _, e := range events {
		forms[f].write(out, e)
	}
	if f == CSV {
		return out.Bytes()
	}
	lines := bytes.TrimSuffix(out.Bytes(), []byte("\n"))
	return fmt.Appendf(nil, "[%s]", bytes.ReplaceAll(lines, []byte("\n"), []byte(",")))
}

// cloudEvent has a struct of its own for each object: the order of the members must never change,
// because a repeated event has the same bytes.
func cloudEvent(out *bytes.Buffer, e event) {
	type data struct {
		Operation  string `json:"operation"`
		Requests   int64  `json:"requests"`
		Charged    int64  `json:"charged"`
		Start      string `json:"start"`
		Correction int64  `json:"correction,omitempty"`
		Units      int64  `json:"units"`
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(struct {
		SpecVersion     string `json:"specversion"`
		ID              string `json:"id"`
		Source          string `json:"source"`
		Type            string `json:"type"`
		Subject         string `json:"subject"`
		Time            string `json:"time"`
		DataContentType string `json:"datacontenttype"`
		Data            data   `json:"data"`
	}{
		"1.0",
		e.id(),
		"/petgate/" + e.installation,
		"petgate.requests",
		e.Tenant.String(),
		e.Hour.Add(time.Hour).String(),
		"application/json",
		data{e.Operation, e.Requests, e.Charged, e.Hour.String(), e.Correction, e.Units},
	}); err != nil {
		panic("bug: encode an event: " + err.Error())
	}
}

func csvLine(out *bytes.Buffer, e event) {
	w := csv.NewWriter(out)
	w.UseCRLF = true
	_ = w.Write([]string{ // a buffer takes every line
		e.id(), e.Hour.String(), e.Tenant.String(), e.Operation, strconv.FormatInt(e.Correction, 10),
		strconv.FormatInt(e.Requests, 10), strconv.FormatInt(e.Charged, 10), strconv.FormatInt(e.Units, 10),
	})
	w.Flush()
}
