package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"petgate/shared/core/id"
	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

// liveEvery is how often a page asks livePath for live figures.
const (
	liveEvery = 2 * time.Second
	livePath  = Home + "live"
)

// live sends the figures of the overview, as the same parts of the page that the overview has.
func (c *Console) live(w http.ResponseWriter, _ *http.Request, _ *visit) error {
	seen := c.watch.look()
	parts := map[string]string{"at": seen.At}
	for _, name := range []string{"now", "gateways", "problems"} {
		var part bytes.Buffer
		if err := c.pages["overview"].ExecuteTemplate(&part, "live-"+name, seen); err != nil {
			return err
		}
		parts[name] = part.String()
	}
	service.WriteJSON(w, http.StatusOK, parts)
	return nil
}

// watch knows what all registered gateways do now. All pages share what it finds, so the gateways
// and the database are asked at most once in half of liveEvery, however many look.
type watch struct {
	store *keystore.Store
	every time.Duration
	clock func() time.Time
	ctx   context.Context // with what the admin ports of gateways need; it ends with the console
	own   func() []service.Problem
	self  string // the ID of the gateway that serves the console

	mu       sync.Mutex
	at       time.Time // of seen; zero: never
	gateways operate.Watch
	known    []keystore.Gateway // when the database was last read
	seen     overviewLive
	tenants  []string // the busiest ones, by ID
}

// overviewLive is the part of the overview that changes by itself.
type overviewLive struct {
	At       string
	Rate     string // requests per second at all gateways together; a dash: not known
	Gateways list
	Problems []*problemRow // each once, with all gateways that have it
}

type problemRow struct {
	Of     string // gateways
	Text   string
	Severe bool // a gateway does not serve, or is not known to serve
}

// look returns what the gateways do now. Those who wait while the gateways are asked share the
// answer.
func (w *watch) look() overviewLive {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.clock(); w.at.IsZero() || now.Sub(w.at) >= w.every/2 || now.Before(w.at) {
		w.refresh(now)
	}
	return w.seen
}

// busy returns the tenants that are busy now.
func (w *watch) busy() (tenants []id.Tenant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.tenants {
		if tenant, err := id.ParseTenant(text); err == nil {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// certificateText says when the first certificate of a gateway expires.
func certificateText(l operate.Live, now time.Time) string {
	if l.CertificateEnds == 0 {
		return "-"
	}
	left := l.CertificateEnds.Time().Sub(now)
	return operate.Either(left > 0, "expires in "+operate.Until(left), "has expired")
}

// gatewayNow is what one gateway does now.
type gatewayNow struct {
	view     operate.GatewayView // without a state: the database cannot be read
	figures  operate.Figures
	problems []service.Problem // that it reports
}

// refresh asks the database and all gateways, each for at most a second.
func (w *watch) refresh(now time.Time) {
	ctx, cancel := context.WithTimeout(w.ctx, databaseWithin)
	defer cancel()
	found := problems{}
	for _, p := range w.own() {
		found.add(w.self, p)
	}
	gateways, views, err := operate.Operator{Store: w.store}.ViewGateways(ctx)
	if err != nil {
		found.add("", service.Problem{
			Detail: "The database cannot be read. These are the gateways that were registered before: " + err.Error(),
		})
		gateways = w.known
		views = make([]operate.GatewayView, len(gateways))
	}
	w.known = gateways
	all := w.ask(ctx, gateways, views)
	seen := overviewLive{
		At:   now.UTC().Format("15:04:05 UTC"),
		Rate: "-",
		Gateways: list{
			ID:      "live-gateways",
			Caption: "What each gateway does now",
			None:    "No gateway is registered.",
			Columns: []column{
				{Title: "Gateway"},
				{Title: "State"},
				{"Requests/s", numbers},
				{"Refused/s", numbers},
				{"p50", numbers},
				{"p99", numbers},
				{Title: "Quotas"},
				{"Lag (events)", numbers},
				{Title: "Version"},
				{Title: "Document"},
				{Title: "Certificate"},
			},
		},
	}
	var requests float64
	for _, g := range all {
		g.report(found)
		seen.Gateways.Rows = append(seen.Gateways.Rows, g.row(now))
		if g.figures.Seconds > 0 {
			requests += g.figures.RequestRate
			seen.Rate = rateText(requests)
		}
	}
	seen.Problems = found.rows()
	w.seen = seen
	w.at = w.clock()
}

// ask asks all gateways at once. It remembers the busiest tenants.
func (w *watch) ask(ctx context.Context, gateways []keystore.Gateway, views []operate.GatewayView) []gatewayNow {
	all := make([]gatewayNow, len(gateways))
	var group sync.WaitGroup
	for i, g := range gateways {
		all[i].view = views[i]
		if g.ID == w.self { // its problems are known
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, operate.LiveWithin)
			defer cancel()
			// No error is kept: Ask below asks the same gateway, and its error is shown.
			all[i].problems, _ = operate.AskProblems(ctx, g)
		})
	}
	figures := w.gateways.Ask(ctx, gateways, tenantsTop)
	group.Wait()
	for i, f := range figures {
		all[i].figures = f
	}
	w.tenants = slices.Collect(maps.Keys(operate.SumTenants(figures)))
	return all
}

// report adds what is wrong with the gateway.
func (g gatewayNow) report(to problems) {
	name := g.figures.Gateway.ID
	if problem, cure := operate.GatewayTrouble(g.figures.Gateway, g.view.State); problem != "" {
		to.add(name, service.Problem{Detail: problem + ". The cure: " + cure})
	}
	if g.figures.Err != nil {
		to.add(name, service.Problem{Detail: "its figures are missing: " + g.figures.Err.Error()})
	}
	for _, p := range g.problems {
		to.add(name, p)
	}
}

// row returns the gateway's row of the overview.
func (g gatewayNow) row(now time.Time) []cell {
	f, state := g.figures, g.view.State
	isKnown := state != ""
	lag, rate, refused := "-", "-", "-"
	if isKnown {
		lag = fmt.Sprint(g.view.Lag)
	}
	if f.Seconds > 0 {
		rate = rateText(f.RequestRate)
		refused = rateText(f.RefusedRate)
	}
	return []cell{
		{Text: f.Gateway.ID},
		status(operate.OrDash(state), state == keystore.GatewayLive || !isKnown),
		{Text: rate},
		{Text: refused},
		{Text: operate.Latency(f.P50)},
		{Text: operate.Latency(f.P99)},
		{Text: cmp.Or(modes[f.Mode], f.Mode, "-")},
		{Text: lag},
		{Text: operate.OrDash(f.Version)},
		{Text: operate.OrDash(f.Gateway.Document.String())},
		{Text: certificateText(f.Live, now)},
	}
}

// problems are problems by text, with the gateways that have them.
type problems map[string]*problemRow

func (all problems) add(gateway string, p service.Problem) {
	text := p.Detail
	if p.Name != "" {
		text = p.Name + ": " + text
	}
	row := all[text]
	if row == nil {
		row = &problemRow{Text: text}
		all[text] = row
	}
	row.Severe = row.Severe || !p.Serving
	if gateway != "" && !slices.Contains(strings.Split(row.Of, ", "), gateway) {
		row.Of = strings.TrimPrefix(row.Of+", "+gateway, ", ")
	}
}

// rows returns the problems, severe ones first.
func (all problems) rows() []*problemRow {
	rank := func(p *problemRow) string { return operate.Either(p.Severe, "0", "1") }
	return slices.SortedFunc(maps.Values(all), func(a, b *problemRow) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Text, b.Text))
	})
}

// modes say where a gateway counts quotas.
var modes = map[string]string{"shared": "in Redis", "memory": "in process", "outage": "own share: Redis is away"}

func rateText(perSecond float64) string { return fmt.Sprintf("%.1f", perSecond) }
