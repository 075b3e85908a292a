package console

import (
	"cmp"
	"context"
	"html/template"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"petgate/shared/api/code"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/plot"
)

// usagePart is what template "usage" shows: the requests of a tenant in one span of time, in two drawings with the tables behind them.
type usagePart struct {
	Spans    []usageSpan
	Drawings []drawing // none: there were no requests
	About    string    // what the drawings show, if they do not show all requests; may be empty
	Outcomes list      // the most frequent first
	Refusals list      // and failures, the latest first
	Problem  string    // why nothing can be shown; empty: nothing is wrong
}

// usageSpan is a span of time that ends now. The query ?usage=NAME of a page chooses it.
type usageSpan struct {
	Name, Title string
	Chosen      bool

	period string        // of one bar
	length time.Duration // of one bar
	bars   int
}

const day = 24 * time.Hour

// usageSpans are the spans that can be chosen.
var usageSpans = []usageSpan{
	{Name: "3h", Title: "3 hours", period: "minute", length: time.Minute, bars: 180},
	{Name: "24h", Title: "24 hours", period: "hour", length: time.Hour, bars: 24},
	{Name: "30d", Title: "30 days", period: "day", length: day, bars: 30},
	{Name: "400d", Title: "400 days", period: "week", length: 7 * day, bars: 59},
}

// usualSpan is the index of the span that is shown if none is chosen.
const usualSpan = 1

// attempts is the only series of minutes.
const attempts = "attempts"

const aboutAttempts = "An attempt is a request that asked for a part of the quota, whether it got it or not. Gateways store attempts once a " +
	"minute: those of the last two minutes may be missing."

// drawing is a plot with its figures.
type drawing struct {
	plot.Usage
	SVGs [2]template.HTML // for wide screens and for narrow ones
	Rows []drawnRow       // the latest first, without periods that have no requests
}

type drawnRow struct {
	Name   string
	Counts []string
}

// unknownOperation is the name of requests that were refused before their operation was known.
const unknownOperation = "no operation"

// otherOperations are those that have no series of their own.
const otherOperations = "others"

// The widths of drawings. The stylesheet shows the narrow one on a telephone: a wide one would have to be scrolled or have small letters.
const (
	wideWidth    = 880 // of one that stands alone
	drawingWidth = 520
	narrowWidth  = 328
)

// usageOf reads the requests with a tenant's live keys, or with one of its keys if key is not zero, in the span with the given name; with an unknown name, in
// the usual span. limits are the tenant's; they may be unset. Attempts by minute are not kept for each key.
func (c *Console) usageOf(ctx context.Context, o operate.Operator, tenant id.Tenant, key id.Key, name string, limits plan.Limits) (part usagePart) {
	part.Spans = slices.Clone(usageSpans)
	if !key.IsZero() {
		part.Spans = part.Spans[usualSpan:]
	}
	at := slices.IndexFunc(part.Spans, func(s usageSpan) bool { return s.Name == name })
	if at < 0 {
		at = slices.IndexFunc(part.Spans, func(s usageSpan) bool { return s.Name == usageSpans[usualSpan].Name })
	}
	part.Spans[at].Chosen = true
	span := part.Spans[at]
	starts := span.starts(instant.Of(c.cfg.Clock()))
	var rows []keystore.PeriodUsage
	var err error
	if span.length == time.Minute {
		part.About = aboutAttempts
		rows, err = attemptsSince(ctx, o, tenant, starts[0])
	} else {
		rows, err = o.Store.UsageByPeriod(ctx, tenant, key, starts[0], min(span.length, day))
	}
	if err != nil {
		c.cfg.Log.Warn("console: the usage of a tenant cannot be read", "tenant", tenant, "error", err)
		part.Problem = "The requests cannot be read: " + err.Error() + "."
		return part
	}
	if span.length == time.Minute && len(rows) > 0 {
		byMinute := span.plot("usage-minute", "Attempts by minute", starts, rows, []string{attempts}, func(keystore.PeriodUsage) string { return attempts })
		byMinute.Noun, byMinute.Limit = "", span.limit(limits)
		part.Drawings = []drawing{drawn(byMinute)}
		return part
	}
	rows = slices.DeleteFunc(rows, func(r keystore.PeriodUsage) bool { return r.Outcome == reportOutcome })
	if len(rows) == 0 {
		return part
	}
	byOutcome := span.plot("usage-outcome", "Requests by outcome", starts, rows, plot.Outcomes, classOfRow)
	byOutcome.Limit = span.limit(limits)
	byOperation := span.plot("usage-operation", "Requests by operation", starts, rows, operationsOf(rows), operationOf)
	part.Drawings = []drawing{drawn(byOutcome), drawn(byOperation)}
	totals := map[string]int64{}
	for _, r := range rows {
		totals[r.Outcome] += r.Requests
	}
	part.Outcomes = outcomeList("Requests by outcome in the whole span", totals)
	part.Refusals = refusalList(span, rows)
	return part
}

// outcomeList returns numbers of requests by outcome, the most frequent first.
func outcomeList(caption string, totals map[string]int64) list {
	l := list{Caption: caption, Columns: []column{"Outcome", "Is", "#Requests"}, None: "No request was refused or failed."}
	most := mostFirst(totals)
	for _, outcome := range most {
		l.Rows = append(l.Rows, []cell{
			{Text: outcome, Link: rankingsPath + "?outcome=" + outcome}, {Text: classOf(outcome)}, bar(totals[outcome], totals[most[0]]),
		})
	}
	return l
}

// refusalsShown is how many rows the list of refusals has.
const refusalsShown = 8

// refusalList returns the latest periods in which requests were refused or failed. rows are in the order of time.
func refusalList(span usageSpan, rows []keystore.PeriodUsage) list {
	l := list{
		Caption: "Latest refusals and failures", Columns: []column{"Since (UTC)", "Outcome", "Operation", "#Requests"},
		None: "No request was refused or failed.",
	}
	for _, r := range slices.Backward(rows) {
		if r.Outcome != code.OK.Name && len(l.Rows) < refusalsShown {
			l.Rows = append(l.Rows, []cell{
				{Text: r.Start.Time().Format(operate.Either(span.length == time.Hour, "2 Jan 15:04", "2 Jan"))},
				{Text: r.Outcome},
				{Text: operationOf(r)},
				{Text: humanize.Comma(r.Requests)},
			})
		}
	}
	return l
}

// attemptsSince returns the attempts with a tenant's live keys by minute.
func attemptsSince(ctx context.Context, o operate.Operator, tenant id.Tenant, since instant.Millis) ([]keystore.PeriodUsage, error) {
	minutes, err := o.Minutes(ctx, tenant, apikey.Live, since, math.MaxInt64)
	rows := make([]keystore.PeriodUsage, len(minutes))
	for i, m := range minutes {
		rows[i] = keystore.PeriodUsage{Start: m.At, Requests: m.Attempts}
	}
	return rows, err
}

// starts returns the starts of the span's bars. The last bar is the present one. Weeks begin on Monday.
func (s usageSpan) starts(now instant.Millis) []instant.Millis {
	last := now.Truncate(min(s.length, day))
	if s.length > day {
		const monday = 4 * day // the first one after the epoch, which was a Thursday
		last = now.Add(-monday).Truncate(s.length).Add(monday)
	}
	starts := make([]instant.Millis, s.bars)
	for i := range starts {
		starts[i] = last.Add(-time.Duration(s.bars-1-i) * s.length)
	}
	return starts
}

// limit returns the limit of a bar's period. 0: it has none. Attempts may be above it: those that are refused count too.
func (s usageSpan) limit(limits plan.Limits) int64 {
	switch s.length {
	case day:
		return limits.Day
	case time.Minute:
		return limits.Minute
	case time.Hour:
		if hour := 60 * limits.Minute; hour <= limits.Day {
			return hour
		}
	}
	return 0
}

// plot adds up rows by bar and series. A row whose series is not listed belongs to the last one.
func (s usageSpan) plot(id, title string, starts []instant.Millis, rows []keystore.PeriodUsage, series []string, of func(keystore.PeriodUsage) string) plot.Usage {
	u := plot.Usage{ID: id, Title: title, Period: s.period, Width: drawingWidth, Series: series, Noun: "Requests"}
	for _, start := range starts {
		at := start.Time().UTC()
		bar := plot.Bar{Label: at.Format("2 Jan"), Name: at.Format("2006-01-02"), Counts: make([]int64, len(series))}
		switch s.period {
		case "minute", "hour":
			bar.Label, bar.Name = at.Format("15:04"), at.Format("2006-01-02 15:04 UTC")
		case "week":
			bar.Name = "the week of " + bar.Name
		}
		u.Bars = append(u.Bars, bar)
	}
	for _, r := range rows {
		// The clock of a gateway may be ahead: its requests belong to the last bar.
		i := min(int(r.Start.Sub(starts[0])/s.length), len(u.Bars)-1)
		name := of(r)
		n := slices.Index(series, name)
		if n < 0 {
			n = len(series) - 1
		}
		u.Bars[i].Counts[n] += r.Requests
	}
	return u
}

// drawn returns a plot with the table behind it. Package plot escapes all texts of the SVG.
func drawn(u plot.Usage) drawing {
	narrow := u
	narrow.ID, narrow.Width = u.ID+"-narrow", narrowWidth
	d := drawing{Usage: u, SVGs: [2]template.HTML{template.HTML(u.SVG()), template.HTML(narrow.SVG())}}
	for _, bar := range slices.Backward(u.Bars) {
		row := drawnRow{Name: bar.Name}
		for _, n := range bar.Counts {
			row.Counts = append(row.Counts, humanize.Comma(n))
		}
		if bar.Sum() > 0 {
			d.Rows = append(d.Rows, row)
		}
	}
	return d
}

// reportOutcome is the outcome of a report of the quota, which is neither charged nor refused.
const reportOutcome = "report"

// classOf returns which of plot.Outcomes an outcome belongs to.
func classOf(outcome string) string {
	switch {
	case outcome == code.OK.Name:
		return plot.Outcomes[0]
	case code.IsFailure(outcome):
		return plot.Outcomes[2]
	}
	return plot.Outcomes[1]
}

func classOfRow(r keystore.PeriodUsage) string { return classOf(r.Outcome) }

func operationOf(r keystore.PeriodUsage) string { return cmp.Or(r.Operation, unknownOperation) }

// operationsOf returns the names of the series of a drawing by operation: the most called operations first, and at most as many names
// as a drawing can tell apart.
func operationsOf(rows []keystore.PeriodUsage) []string {
	totals := map[string]int64{}
	for _, r := range rows {
		totals[operationOf(r)] += r.Requests
	}
	names := mostFirst(totals)
	if len(names) > plot.SeriesMax {
		names = append(names[:plot.SeriesMax-1], otherOperations)
	}
	return names
}

// mostFirst returns the names, those with the highest totals first.
func mostFirst(totals map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(totals), func(a, b string) int {
		return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b))
	})
}
