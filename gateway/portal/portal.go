// Package portal writes the documentation for the API's consumers: a page for people, the OpenAPI document, and text for
// programs that read text. Everything is made from the API's document, whatever it has: what it lacks is left out, or made up from its
// schemas. The portal does no I/O and serves nothing: it returns bytes, and package edge sends them.
//
// The page is complete without its script. The script adds a place to try the operations. It keeps the key in one variable,
// and calls nothing but the API from which the page came. All references are relative, so that the page also works behind a
// proxy that removes a prefix from paths.
package portal

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	texttemplate "text/template"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

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

// Page is one page. Its bytes must not be changed.
type Page struct {
	Path string // exact
	Type string // Content-Type
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
		"prose": prose, "inline": inline, "plain": plain, "short": short, "code": codeBlock, "shell": shell, "escaped": escaped.Replace, "goText": goText, "quote": quote,
		"json": jsonLiterals.format, "python": pythonLiterals.format,
	}
	pageTexts = template.Must(template.New("").Funcs(functions).Option("missingkey=error").ParseFS(assets, "assets/*.html"))
	texts     = texttemplate.Must(texttemplate.New("").Funcs(texttemplate.FuncMap(functions)).Option("missingkey=error").ParseFS(assets, "assets/*.md", "assets/*.txt"))
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

// New returns the pages of an API. It fails only if the document cannot be written as JSON.
func New(cfg Config) (*Portal, error) {
	p := &Portal{m: newModel(cfg)}
	asJSON, err := json.Marshal(cfg.API.Document)
	if err != nil {
		return nil, fmt.Errorf("portal: the document as JSON: %w", err)
	}
	add := func(path, contentType string, body []byte) {
		p.fixed = append(p.fixed, newPage(path, contentType, body))
	}
	for _, f := range [][3]string{
		{Home + "/petgate.css", "text/css; charset=utf-8", "petgate.css"},
		{Home + "/petgate.js", "text/javascript; charset=utf-8", "petgate.js"},
		{"/favicon.ico", "image/svg+xml", "icon.svg"}, // browsers ask for it without a page, too
	} {
		body, err := assets.ReadFile("assets/" + f[2])
		if err != nil {
			return nil, err
		}
		add(f[0], f[1], body)
	}
	add("/openapi.yaml", "application/yaml", cfg.API.Source)
	add("/openapi.json", "application/json", asJSON)
	if !p.m.IsForeign {
		err = fs.WalkDir(clients.Files, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := clients.Files.ReadFile(name)
			add(Home+"/"+path.Base(name), plainType, text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if !p.m.IsSplit {
		return p, nil
	}
	written := make([][]Page, len(p.m.Groups))
	var writers errgroup.Group
	writers.SetLimit(runtime.GOMAXPROCS(0))
	for i, g := range p.m.Groups {
		writers.Go(func() (err error) {
			written[i], err = newView(p.m, Home+"/"+g.ID, []*group{g}).pages("group.md")
			return err
		})
	}
	err = writers.Wait()
	p.fixed = append(p.fixed, slices.Concat(written...)...)
	return p, err
}

// Pages returns all pages. The first one is for people.
func (p *Portal) Pages(plans []Plan) ([]Page, error) {
	v := newView(p.m, Home, p.m.Groups)
	v.Plans = slices.SortedFunc(slices.Values(plans), func(a, b Plan) int {
		return cmp.Or(cmp.Compare(uint64(a.Minute-1), uint64(b.Minute-1)), cmp.Compare(a.Name, b.Name)) // those without limits last
	})
	v.Periods = []period{{plan.Minute, "60 seconds"}, {plan.Day, "a day"}}
	if slices.ContainsFunc(plans, func(p Plan) bool { return p.Month != 0 }) {
		v.Periods = append(v.Periods, period{plan.Month, "a month"})
	}
	all, err := v.pages("docs.md")
	if err != nil {
		return nil, err
	}
	llms, err := v.text("llms.txt")
	if err != nil {
		return nil, err
	}
	all = slices.Concat(all, []Page{newPage("/llms.txt", plainType, llms)}, p.fixed)
	for i := range all {
		all[i].Path = p.m.OwnPrefix + all[i].Path
	}
	return all, nil
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
	v := &view{model: m, Path: path, Root: strings.Repeat("../", strings.Count(path, "/")-1)}
	shown := map[string]bool{}
	if m.IsSplit && path == Home {
		shown[m.Error] = true
		references(shown, m.doc.Components.Schemas[m.Error])
	} else {
		v.Shown = groups
	}
	for _, g := range v.Shown {
		for _, o := range g.Operations {
			for name := range o.schemas {
				shown[name] = true
			}
		}
	}
	v.Schemas = slices.DeleteFunc(slices.Clone(m.Schemas), func(s schema) bool { return m.IsSplit && !shown[s.Name] })
	return v
}

// Home returns how the page refers to the first page: empty if it is the first page.
func (v *view) Home() string {
	if v.Path == Home {
		return ""
	}
	return v.Root + Home[1:]
}

// Listed returns the groups in the contents of the page: all on the first page, and on a group's page that one. If each page listed all, the
// pages together would grow with the square of the document.
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

// First returns the operation of the first example: one without parameters in its path, if there is one.
func (v *view) First() *operation {
	all := v.All()
	return all[max(0, slices.IndexFunc(all, func(o *operation) bool { return o.Method == "GET" && !strings.Contains(o.Path, "{") }))]
}

// pages returns the page for people, and the same as Markdown.
func (v *view) pages(markdownTemplate string) ([]Page, error) {
	var page bytes.Buffer
	if err := pageTexts.ExecuteTemplate(&page, "docs.html", v); err != nil {
		return nil, fmt.Errorf("portal: %s: %w", v.Path, err)
	}
	asMarkdown, err := v.text(markdownTemplate)
	return []Page{newPage(v.Path, htmlType, page.Bytes()), newPage(v.Path+".md", markdownType, asMarkdown)}, err
}

func (v *view) text(name string) ([]byte, error) {
	var text bytes.Buffer
	if err := texts.ExecuteTemplate(&text, name, v); err != nil {
		return nil, fmt.Errorf("portal: %s: %w", name, err)
	}
	return text.Bytes(), nil
}

// Guide executes a template of assets/guide.md.
func (v *view) Guide(name string) (string, error) {
	text, err := v.text(name)
	return string(text), err
}

// Stylesheet returns the stylesheet of the documentation. The operators' console begins with it, so that both look alike.
func Stylesheet() ([]byte, error) { return assets.ReadFile("assets/petgate.css") }

// quickBytesMin is the size from which a page is compressed quickly: a start must not wait for a document of 10 MB.
const quickBytesMin = 512 << 10

func newPage(path, contentType string, body []byte) Page {
	var compressed bytes.Buffer
	level := gzip.BestCompression
	if len(body) > quickBytesMin {
		level = gzip.BestSpeed
	}
	w, _ := gzip.NewWriterLevel(&compressed, level) // the level is valid
	_, _ = w.Write(body)                            // a buffer takes everything
	_ = w.Close()
	sum := sha256.Sum256(body)
	return Page{
		Path: path, Type: contentType, Body: body, Gzip: compressed.Bytes(),
		ETag: `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
	}
}
