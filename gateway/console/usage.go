package console

import (
	"cmp"
	"context"
	"html/template"
	"maps"
	"math"
	"slices"
	"time"

	"petgate/shared/api/code"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/plot"
)

// usagePart is what template "usage" shows: the requests of a tenant in one span of time, in a
// drawing with the table behind it.
type usagePart struct {
	Spans    []usageSpan
	Drawing  *drawing // nil: there were no requests
	About    string   // what the drawing shows, if it does not show all requests; may be empty
	Outcomes list     // the most frequent first
	Refusals list     // and failures, the latest first
	Problem  string   // why nothing can be shown; empty: nothing is wrong
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

const aboutAttempts = "An attempt is a request that asked for a part of the quota, whether it got it or not. " +
	"Gateways store attempts once a " +
	"minute: those of the last two minutes may be missing."

// drawing is a plot with its figures.
type drawing struct {
	plot.Usage
	SVGs    [2]template.HTML // for wide screens and for narrow ones
	Figures list             // the latest first, without periods that have no requests
}

// unknownOperation is the name of requests that were refused before their operation was known.
const unknownOperation = "no operation"

// The widths of drawings. The stylesheet shows the narrow one on a telephone: a wide one would have
// to be scrolled or have small letters.
const (
	wideWidth   = 880
	narrowWidth = 328
)

// usageOf reads the requests with a tenant's live keys, or with one of its keys if key is not zero,
// in the span with the given name; with an unknown name, in the usual span. limits are the
// tenant's; they may be unset. Attempts by minute are not kept for each key.
func (c *Console) usageOf(
	ctx context.Context, o operate.Operator, tenant id.Tenant, key id.Key, name string, limits plan.Limits,
) (part usagePart) {
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
	var rows []usage.OfPeriod
	var err error
	if span.length == time.Minute {
		part.About = aboutAttempts
		rows, err = attemptsSince(ctx, o, tenant, starts[0])
	} else {
		rows, err = usage.Of(o.Store).UsageByPeriod(ctx, tenant, key, starts[0], min(span.length, day))
	}
	if err != nil {
		c.cfg.Log.Warn("console: the usage of a tenant cannot be read", "tenant", tenant, "error", err)
		part.Problem = "The requests cannot be read: " + err.Error() + "."
		return part
	}
	if span.length == time.Minute && len(rows) > 0 {
		u := span.plot("usage-minute", "Attempts by minute", starts, rows, []string{"attempts"})
		u.Limit = span.limit(limits)
		part.Drawing = drawn(u)
		return part
	}
	rows = slices.DeleteFunc(rows, func(r usage.OfPeriod) bool { return r.Outcome == reportOutcome })
	if len(rows) == 0 {
		return part
	}
	u := span.plot("usage-outcome", "Requests by outcome", starts, rows, plot.Outcomes)
	u.Limit = span.limit(limits)
	part.Drawing = drawn(u)
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
	l := list{
		Caption: caption,
		Columns: []column{
			{Title: "Outcome"}, {Title: "Is"}, {"Requests", numbers},
		},
		None: "No request was refused or failed.",
	}
	most := slices.SortedFunc(maps.Keys(totals),
		func(a, b string) int { return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b)) })
	for _, outcome := range most {
		l.Rows = append(l.Rows, []cell{
			{
				Text: outcome,
				Link: rankingsPath + "?outcome=" + outcome,
			}, {Text: plot.Outcomes[classOf(outcome)]}, bar(totals[outcome], totals[most[0]]),
		})
	}
	return l
}

// refusalsShown is how many rows the list of refusals has.
const refusalsShown = 8

// refusalList returns the latest periods in which requests were refused or failed. rows are in the
// order of time.
func refusalList(span usageSpan, rows []usage.OfPeriod) list {
	l := list{
		Caption: "Latest refusals and failures", Columns: []column{
			{Title: "Since (UTC)"}, {Title: "Outcome"}, {Title: "Operation"}, {"Requests", numbers},
		},
		None: "No request was refused or failed.",
	}
	for _, r := range slices.Backward(rows) {
		if r.Outcome != code.OK.Name && len(l.Rows) < refusalsShown {
			l.Rows = append(l.Rows, []cell{
				{Text: r.Start.Time().Format(operate.Either(span.length == time.Hour, "2 Jan 15:04", "2 Jan"))},
				{Text: r.Outcome},
				{Text: cmp.Or(r.Operation, unknownOperation)},
				number(r.Requests),
			})
		}
	}
	return l
}

// attemptsSince returns the attempts with a tenant's live keys by minute.
func attemptsSince(
	ctx context.Context, o operate.Operator, tenant id.Tenant, since instant.Millis,
) ([]usage.OfPeriod, error) {
	minutes, err := o.Minutes(ctx, tenant, apikey.Live, since, math.MaxInt64)
	return operate.ViewsOf(minutes, func(m operate.MinuteView) usage.OfPeriod {
		return usage.OfPeriod{Start: m.At, Requests: m.Attempts}
	}), err
}

// starts returns the starts of the span's bars. The last bar is the present one. Weeks begin on
// Monday.
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

// limit returns the limit of a bar's period. 0: it has none. Attempts may be above it: those that
// are refused count too.
func (s usageSpan) limit(limits plan.Limits) int64 {
	switch s.length {
	case day:
		return limits.Day
	case time.Minute:
		return limits.Minute
	case time.Hour:
		if hour := 60 * limits.Minute; limits.Day == 0 || hour <= limits.Day {
			return hour
		}
	}
	return 0
}

// plot adds up rows by bar and series: plot.Outcomes, or the only one.
func (s usageSpan) plot(id, title string, starts []instant.Millis, rows []usage.OfPeriod, series []string) plot.Usage {
	u := plot.Usage{ID: id, Title: title, Period: s.period, Width: wideWidth, Series: series}
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
		u.Bars[i].Counts[min(classOf(r.Outcome), len(series)-1)] += r.Requests
	}
	return u
}

// drawn returns a plot with the table behind it. Package plot escapes all texts of the SVG.
func drawn(u plot.Usage) *drawing {
	narrow := u
	narrow.ID, narrow.Width = u.ID+"-narrow", narrowWidth
	figures := list{Caption: u.Title + ", the latest first", Columns: titled(u.Period + " (UTC)")}
	for _, name := range u.Series {
		figures.Columns = append(figures.Columns, column{name, numbers})
	}
	for _, bar := range slices.Backward(u.Bars) {
		if bar.Sum() > 0 {
			figures.Rows = append(figures.Rows,
				append([]cell{{Text: bar.Name}}, operate.ViewsOf(bar.Counts, number)...))
		}
	}
	return &drawing{u, [2]template.HTML{template.HTML(u.SVG()), template.HTML(narrow.SVG())}, figures}
}

// reportOutcome is the outcome of a report of the quota, which is neither charged nor refused.
const reportOutcome = "report"

// classOf returns which of plot.Outcomes an outcome belongs to.
func classOf(outcome string) int {
	switch {
	case outcome == code.OK.Name:
		return 0
	case code.IsFailure(outcome):
		return 2
	}
	return 1
}
