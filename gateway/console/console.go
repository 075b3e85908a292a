// Package console is the operators' console: pages on the admin port that show gateways, tenants,
// keys, plans and bans, and forms that change them. A form does what the command of keyadmin does,
// by the same function of shared/operate: it asks before something ends, and says how many gateways
// have confirmed the change. Lists are read page by page.
//
// It has no passwords: an identity proxy signs people in, or `keyadmin console` does. `keyadmin
// console` writes an invitation to the database and prints a link with a code, which opens one
// session. So the console is for people who can use the database. The events of a session have the
// name of the person who asked for the link. The code is in the fragment of the link, which
// browsers do not send: it is in no log and in no referrer.
//
// Pages are complete without the script. No GET changes anything. A session that is read-only can
// send no form but the one that ends it.
package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"petgate/gateway/portal"
	"petgate/shared/core/id"
	"petgate/shared/core/quota"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/keystore/sessions"
	"petgate/shared/keystore/usage"
	"petgate/shared/operate"
	"petgate/shared/plot"
	"petgate/shared/service"
)

// Home is the path of the first page. All paths of the console begin with it.
const Home = "/console/"

const loginPath = Home + "login"

// databaseWithin bounds the work of one request at the database.
const databaseWithin = 5 * time.Second

// contentSecurityPolicy allows the files of this origin, and forms to it.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

//go:embed assets
var assets embed.FS

// Config is the configuration of a console.
type Config struct {
	Gateway string // the ID of the gateway that serves it
	Address string // of its admin port, as it is registered
	// with the rights of keyadmin, and connections that no request of the public port needs
	Store    *keystore.Store
	Forms    *keystore.Store          // the same for forms, with connections that no page needs
	Problems func() []service.Problem // of this gateway
	Log      *slog.Logger
	Clock    func() time.Time // nil: time.Now
	Proxies  Proxies
	AdminTLS *tls.Config // for the admin ports of gateways that use TLS; nil: the system's authorities

	// Quota returns how much of its limits a tenant has used, and charges nothing.
	// ErrUnknownTenant: this gateway does not know the tenant yet.
	Quota func(context.Context, id.Tenant) (quota.Verdict, error)
}

// ErrUnknownTenant is the error of Config.Quota for a tenant that this gateway does not know. Other
// tenants may have an answer.
var ErrUnknownTenant = errors.New("unknown tenant")

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	cfg   Config
	mux   *http.ServeMux
	pages map[string]*template.Template
	notes sync.Map // what forms have changed: a note by its ID

	routes []string // the patterns of mux, for tests

	watch    watch
	hours    figures[[]usage.OfPeriod] // of all tenants
	near     figures[[]nearest]
	expiring figures[[]operate.KeyView]
	rankings map[string]*figures[ranking] // by the name of their period
	// SHA-256 of a token: the sessions.ConsoleSession that the database has confirmed
	sessions sync.Map
	ctx      context.Context
	end      context.CancelFunc // ends ctx
}

// New returns a console. It fails only if an embedded page is invalid.
func New(cfg Config) (*Console, error) {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	cfg.Forms.Seek(changeWithin - databaseWithin)
	c := &Console{cfg: cfg, mux: http.NewServeMux(), pages: map[string]*template.Template{}}
	c.ctx, c.end = context.WithCancel(operate.WithAdminTLS(context.Background(), cfg.AdminTLS))
	c.watch = watch{
		store: cfg.Store,
		every: liveEvery,
		clock: cfg.Clock,
		ctx:   c.ctx,
		own:   cfg.Problems,
		self:  cfg.Gateway,
	}
	turn := new(sync.Mutex)
	c.hours.read, c.near.read, c.expiring.read = c.readHours, c.readNearest, c.readExpiring
	c.hours.turn, c.near.turn, c.expiring.turn = turn, turn, turn
	c.rankings = map[string]*figures[ranking]{}
	for _, p := range rankingPeriods {
		c.rankings[p.Name] = &figures[ranking]{read: c.readRanking(p), turn: turn}
	}
	for _, name := range []string{
		"login", "overview", "rankings", "message", "question", "token",
		"tenants", "tenant", "key", "plans", "bans", "audit", "gateways", "explain",
	} {
		page, err := template.New("frame.html").Funcs(template.FuncMap{"limitFields": limitFields}).ParseFS(assets,
			"assets/frame.html", "assets/parts.html", "assets/usage.html", "assets/"+name+".html")
		if err != nil {
			return nil, err
		}
		c.pages[name] = page
	}
	if err := c.serveAssets(); err != nil {
		return nil, err
	}
	c.handle("GET "+loginPath, c.withoutSession(c.showLogin))
	c.handle("POST "+loginPath, c.withoutSession(c.login))
	for path, serve := range map[string]func(http.ResponseWriter, *http.Request, *visit) error{
		"{$}":              c.overview,
		"rankings":         c.showRankings,
		"tenants":          c.showTenants,
		"tenants/{tenant}": c.showTenant,
		"keys/{key}":       c.showKey,
		"plans":            c.showPlans,
		"bans":             c.showBans,
		"audit":            c.showAudit,
		"gateways":         c.showGateways,
		"explain":          c.explain,
	} {
		c.handle("GET "+Home+path, c.inSession(sessions.RoleRead, serve))
	}
	c.handle("GET "+livePath, c.inSession(sessions.RoleRead, c.live))
	c.handle("POST "+Home+"logout", c.inSession(sessions.RoleRead, c.logout))
	for _, f := range forms {
		c.handle("POST "+Home+f.path, c.inSession(f.role, c.changing(f)))
	}
	c.handle(Home, c.inSession(sessions.RoleRead, func(w http.ResponseWriter, r *http.Request, v *visit) error {
		return c.say(w, v, http.StatusNotFound, "There is no such page", "The console has no page "+r.URL.Path+".")
	}))
	return c, nil
}

// handle adds a route.
func (c *Console) handle(pattern string, serve http.HandlerFunc) {
	c.mux.HandleFunc(pattern, serve)
	c.routes = append(c.routes, pattern)
}

// Close ends what is read in the background. It does not wait for it.
func (c *Console) Close() { c.end() }

// ServeHTTP serves a request whose path begins with Home.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	// Not no-referrer: browsers then send "Origin: null" with forms, and the admin port refuses
	// those as foreign.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	ctx, cancel := context.WithTimeout(r.Context(), databaseWithin)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	c.mux.ServeHTTP(w, r)
}

// serveAssets adds the stylesheets and the script. The first stylesheet is the one of the
// documentation, so both look alike.
func (c *Console) serveAssets() error {
	files := map[string][]byte{"petgate.css": portal.Stylesheet(), "plot.css": []byte(plot.Stylesheet)}
	var err error
	for _, own := range []string{"console.css", "console.js"} {
		if files[own], err = assets.ReadFile("assets/" + own); err != nil {
			return err
		}
	}
	for name, body := range files {
		c.handle("GET "+Home+"assets/"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "private, max-age=300")
			http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
		})
	}
	return nil
}

// view is what the frame of every page shows.
type view struct {
	Name    string // of the template
	Title   string
	Gateway string
	Session *sessions.ConsoleSession // nil: not signed in
	Nav     []section
	In      string // the name of the section that the page belongs to; empty: none, or it is the section's own page
	Note    *note  // what a form has changed; nil: nothing
	Page    any
}

// May reports whether the session may do what a role may.
func (v view) May(role sessions.Role) bool { return v.Session.Role.Allows(role) }

// section is a page that every page links to.
type section struct{ Name, Path, Title string }

var sections = []section{
	{"overview", Home, "Overview"},
	{"rankings", rankingsPath, "Rankings"},
	{"tenants", Home + "tenants", "Tenants"},
	{"plans", Home + "plans", "Plans"},
	{"bans", Home + "bans", "Bans"},
	{"audit", Home + "audit", "Audit"},
	{"gateways", Home + "gateways", "Gateways"},
	{"explain", Home + "explain", "Explain"},
}

// sectionOf names the section of pages that have no entry of their own.
var sectionOf = map[string]string{"tenant": "tenants", "key": "tenants", "token": "tenants"}

// show writes a page. Its template gets the view. The error is always nil: handlers return what it
// returns.
func (c *Console) show(w http.ResponseWriter, v *visit, status int, name, title string, page any) error {
	shown := view{Name: name, Title: title, Gateway: c.cfg.Gateway, Page: page}
	if v != nil {
		shown.Session, shown.Nav, shown.Note, shown.In = &v.session, sections, v.note, sectionOf[name]
	}
	var body bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&body, "frame.html", shown); err != nil {
		c.cfg.Log.Error("console: a page cannot be written", "error", err)
		http.Error(w, "This page cannot be shown. The log of the gateway says why.", http.StatusInternalServerError)
		return nil
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = body.WriteTo(w)
	return nil
}

// message is a page with one text.
type message struct {
	Text string
	Back string // the path of the page that the text is about; empty: there is none
	Form string // the path of the page with the form that was sent; empty: there is none
}

// say writes a page with one text. After a form, it has a link to the page with the form.
func (c *Console) say(w http.ResponseWriter, v *visit, status int, title, text string) error {
	m := message{Text: text}
	if v != nil {
		m.Form = v.form
	}
	return c.show(w, v, status, "message", title, m)
}

// fail writes the page for an error.
func (c *Console) fail(w http.ResponseWriter, v *visit, err error) {
	refused := func(text string) {
		if v == nil || v.form == "" {
			_ = c.say(w, v, http.StatusBadRequest, "This address cannot be read", text)
			return
		}
		_ = c.say(w, v, http.StatusUnprocessableEntity, "Nothing was changed", text)
	}
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		_ = c.say(w, v, http.StatusNotFound, "This does not exist", sentence(operate.Reason(err, keystore.ErrNotFound)))
	case mistakeIn(err) != "":
		refused(mistakeIn(err))
	case errors.Is(err, keystore.ErrInvalid), errors.Is(err, keystore.ErrConflict):
		refused(sentence(operate.Reason(err, keystore.ErrInvalid, keystore.ErrConflict)))
	case errors.Is(err, keystore.ErrExists):
		refused(sentence("already exists: " + operate.Reason(err, keystore.ErrExists)))
	case database.IsDenied(err):
		c.cfg.Log.Warn("console: its database role lacks a right", "error", err)
		_ = c.say(
			w,
			v,
			http.StatusServiceUnavailable,
			"The console's database role may not do this",
			"Set GATEWAY_CONSOLE_DATABASE_URL to the URL of keyadmin's role, and restart the gateway. If it is "+
				"set, run roles.sql again, as "+
				"after every upgrade.",
		)
	case v != nil && v.hasLeft(): // which cancels what was asked of the database
	default:
		c.cfg.Log.Warn("console: the database cannot be used", "error", err)
		_ = c.say(
			w,
			v,
			http.StatusServiceUnavailable,
			"The database cannot be used",
			operate.Either(
				v != nil && v.form != "", "Nothing was changed. ", "",
			)+"Try again in a moment. If this stays, `keyadmin doctor` finds the cause. The error: "+err.Error(),
		)
	}
}
