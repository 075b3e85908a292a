// Package portal writes the documentation for the API's consumers: a page for people, the OpenAPI
// document, and text for programs that read text. Everything is made from the API's document,
// whatever it has: what it lacks is left out, or made up from its schemas. The portal does no I/O
// and serves nothing: it returns bytes, and package edge sends them.
//
// A page is written at its first request. The pages of a document with thousands of schemas have
// hundreds of megabytes: written at the start, they would delay the gateway, and most would never
// be read.
//
// The page is complete without its script. The script adds a place to try the operations. It keeps
// the key in one variable, and calls nothing but the API from which the page came. All references
// are relative, so that the page also works behind a proxy that removes a prefix from paths.
package portal

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	texttemplate "text/template"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/getkin/kin-openapi/openapi3"

	"petgate/shared/api"
	"petgate/shared/api/clients"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/core/plan"
)

// Home is the path of the page for people.
const Home = "/docs"

// Config is the configuration of the pages.
type Config struct {
	API         *api.API
	Title       string             // of the page; empty: the title of the OpenAPI document
	Environment apikey.Environment // of the keys that the gateway accepts
	KeyPrefix   string             // of new keys; empty: apikey.DefaultPrefix
	Bans        ban.Rule
}

// Plan is a plan and its limits. Those of a plan without limits are agreed with each tenant.
type Plan struct {
	Name string
	plan.Limits
}

// Limit returns what the pages say of a policy.
func (p Plan) Limit(policy string) string {
	switch limit := p.Of(policy); {
	case limit != 0:
		return humanize.Comma(limit)
	case p.IsSet():
		return "no limit"
	}
	return "as agreed"
}

// Page is one page. Content writes it at the first call, and panics if a template is wrong.
type Page struct {
	Path    string // exact
	Type    string // Content-Type
	Content func() Content
}

// Content is what a page has. Its bytes must not be changed.
type Content struct {
	ETag string // weak: Body and Gzip have the same one
	Body []byte
	Gzip []byte // Body, compressed
}

// Portal has the pages of an API.
type Portal struct {
	m     *model
	fixed []Page // those that do not change
}

//go:embed assets
var assets embed.FS

const (
	htmlType     = "text/html; charset=utf-8"
	markdownType = "text/markdown; charset=utf-8"
	plainType    = "text/plain; charset=utf-8"
)

var (
	functions = template.FuncMap{
		"prose": prose, "inline": inline, "plain": plain, "short": short, "code": codeBlock,
		"shell": shell, "escaped": escaped.Replace, "goText": goText, "quote": quote,
		"json": jsonLiterals.format, "python": pythonLiterals.format,
	}
	pageTexts = template.Must(
		template.New("").Funcs(functions).Option("missingkey=error").ParseFS(assets, "assets/*.html"),
	)
	texts = texttemplate.Must(
		texttemplate.New("").Funcs(texttemplate.FuncMap(functions)).Option("missingkey=error").ParseFS(assets,
			"assets/*.md", "assets/*.txt"),
	)
)

// short returns a duration without units that are zero, as in 1m or 1h30m.
func short(d time.Duration) string {
	text := d.Round(time.Second).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// codeBlock has the parameters of the template code.
func codeBlock(title, label, text string) map[string]string {
	return map[string]string{"title": title, "label": label, "text": text}
}

// New returns the pages of an API.
func New(cfg Config) *Portal {
	p := &Portal{m: newModel(cfg)}
	add := func(path, contentType string, text func() []byte) {
		p.fixed = append(p.fixed, newPage(path, contentType, text))
	}
	addAsset := func(path, contentType, name string) {
		add(path, contentType, func() []byte { return read(assets, "assets/"+name) })
	}
	addAsset(Home+"/petgate.css", "text/css; charset=utf-8", "petgate.css")
	addAsset(Home+"/petgate.js", "text/javascript; charset=utf-8", "petgate.js")
	addAsset("/favicon.ico", "image/svg+xml", "icon.svg") // browsers ask for it without a page, too
	add("/openapi.yaml", "application/yaml", cfg.API.Source)
	add("/openapi.json", "application/json", func() []byte {
		return possible(json.Marshal(cfg.API.Document)) // it was read from JSON, or could be
	})
	if !p.m.IsForeign {
		for _, name := range possible(fs.Glob(clients.Files, "*/*")) {
			add(Home+"/"+path.Base(name), plainType, func() []byte { return read(clients.Files, name) })
		}
	}
	if p.m.IsSplit {
		for _, g := range p.m.Groups {
			p.fixed = append(p.fixed,
				pages(Home+"/"+g.ID, "group.md", func() *view { return newView(p.m, Home+"/"+g.ID, []*group{g}) })...)
		}
	}
	return p
}

// Pages returns all pages. The first one is for people.
func (p *Portal) Pages(plans []Plan) []Page {
	sorted := slices.SortedFunc(slices.Values(plans), func(a, b Plan) int {
		byLimit := cmp.Compare(uint64(a.Minute-1), uint64(b.Minute-1)) // 0, which is no limit, comes last
		return cmp.Or(byLimit, cmp.Compare(a.Name, b.Name))
	})
	home := func() *view {
		v := newView(p.m, Home, p.m.Groups)
		v.Plans, v.Periods = sorted, []period{{plan.Minute, "60 seconds"}, {plan.Day, "a day"}}
		if slices.ContainsFunc(sorted, func(p Plan) bool { return p.Month != 0 }) {
			v.Periods = append(v.Periods, period{plan.Month, "a month"})
		}
		return v
	}
	llms := newPage("/llms.txt", plainType, func() []byte { return written(texts, "llms.txt", home()) })
	all := slices.Concat(pages(Home, "docs.md", home), []Page{llms}, p.fixed)
	for i := range all {
		all[i].Path = p.m.OwnPrefix + all[i].Path
	}
	return all
}

// view is what one page shows of a model.
type view struct {
	*model
	Path    string // of the page
	Root    string // how the page refers to the place of its own pages
	Shown   []*group
	Schemas []schema
	Plans   []Plan
	Periods []period // that the table of the plans shows
}

// period is a policy and its period in words.
type period struct{ Policy, Text string }

func newView(m *model, path string, groups []*group) *view {
	v := &view{
		model:   m,
		Path:    path,
		Root:    strings.Repeat("../", strings.Count(path, "/")-1),
		Shown:   groups,
		Schemas: m.Schemas,
	}
	if !m.IsSplit {
		return v
	}
	var roots []*openapi3.SchemaRef
	if path == Home {
		v.Shown, roots = nil, []*openapi3.SchemaRef{m.doc.Components.Schemas[m.Error]}
	}
	for _, g := range v.Shown {
		for _, o := range g.Operations {
			roots = append(roots, o.schemas...)
		}
	}
	shown := references(roots)
	v.Schemas = slices.DeleteFunc(slices.Clone(m.Schemas),
		func(s schema) bool { return !shown[s.Name] && (path != Home || s.Name != m.Error) })
	return v
}

// Home returns how the page refers to the first page: empty if it is the first page.
func (v *view) Home() string {
	if v.Path == Home {
		return ""
	}
	return v.Root + Home[1:]
}

// Listed returns the groups in the contents of the page: all on the first page, and on a group's
// page that one. If each page listed all, the pages together would grow with the square of the
// document.
func (v *view) Listed() []*group {
	if v.Path == Home {
		return v.Groups
	}
	return v.Shown
}

// API returns how the page refers to / for calls of the API.
func (v *view) API() string { return strings.Repeat("../", strings.Count(v.OwnPrefix, "/")) + v.Root }

// To returns how the page refers to an operation.
func (v *view) To(o *operation) string {
	if o.Page == v.Path {
		return "#" + o.Anchor
	}
	return v.Root + o.Page[1:] + "#" + o.Anchor
}

// First returns the operation of the first example: one without parameters in its path, if there is
// one.
func (v *view) First() *operation {
	all := v.All()
	at := slices.IndexFunc(all, func(o *operation) bool { return o.Method == "GET" && !strings.Contains(o.Path, "{") })
	return all[max(0, at)]
}

// pages returns the page of a view for people, and the same as Markdown.
func pages(path, markdown string, of func() *view) []Page {
	return []Page{
		newPage(path, htmlType, func() []byte { return written(pageTexts, "docs.html", of()) }),
		newPage(path+".md", markdownType, func() []byte { return written(texts, markdown, of()) }),
	}
}

// written returns what a template makes of a view.
func written(templates interface {
	ExecuteTemplate(w io.Writer, name string, data any) error
}, name string, v *view,
) []byte {
	var text bytes.Buffer
	err := templates.ExecuteTemplate(&text, name, v)
	return possible(text.Bytes(), err)
}

// possible returns a value. It panics for an error that only a mistake of the program can cause.
func possible[T any](value T, err error) T {
	if err != nil {
		panic("bug: portal: " + err.Error())
	}
	return value
}

func read(files embed.FS, name string) []byte { return possible(files.ReadFile(name)) }

// Guide executes a template of assets/guide.md.
func (v *view) Guide(name string) string { return string(written(texts, name, v)) }

// Stylesheet returns the stylesheet of the documentation. The operators' console begins with it, so
// that both look alike.
func Stylesheet() []byte { return read(assets, "assets/petgate.css") }

// writing lets one page be written at a time, so that a client that asks for all leaves processors
// to other requests.
var writing sync.Mutex

func newPage(path, contentType string, text func() []byte) Page {
	return Page{Path: path, Type: contentType, Content: sync.OnceValue(func() Content {
		writing.Lock()
		defer writing.Unlock()
		body := text()
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		_, _ = w.Write(body) // a buffer takes everything
		_ = w.Close()
		sum := sha256.Sum256(body)
		return Content{
			ETag: `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
			Body: body,
			Gzip: compressed.Bytes(),
		}
	})}
}
