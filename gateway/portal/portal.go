// Package portal writes the documentation for the API's consumers: a page for people, the OpenAPI document, and text for
// programs that read text. Everything is made from shared/api/openapi.yaml when the gateway starts. The portal does no I/O
// and serves nothing: it returns bytes, and package edge sends them.
//
// The page is complete without its script. The script adds a place to try the operations. It keeps the key in one variable,
// and calls nothing but the API from which the page came. All references are relative, so that the page also works behind a
// proxy that removes a prefix from paths.
package portal

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	texttemplate "text/template"

	"github.com/dustin/go-humanize"

	"petgate/shared/api"
	"petgate/shared/core/apikey"
)

// Home is the path of the page for people.
const Home = "/docs"

// Config is the configuration of the pages.
type Config struct {
	API         *api.API
	Title       string             // of the page; empty: the title of the OpenAPI document
	Environment apikey.Environment // of the keys that the gateway accepts
}

// Page is one page. Its bytes must not be changed.
type Page struct {
	Path string // exact
	Type string // Content-Type
	ETag string // weak: Body and Gzip have the same one
	Body []byte
	Gzip []byte // Body, compressed
}

//go:embed assets
var assets embed.FS

// Pages returns all pages. It fails only if the OpenAPI document has something that the templates do not expect.
func Pages(cfg Config) ([]Page, error) {
	m, err := newModel(cfg)
	if err != nil {
		return nil, fmt.Errorf("portal: %w", err)
	}
	asJSON, err := json.Marshal(cfg.API.Document)
	if err != nil {
		return nil, fmt.Errorf("portal: the document as JSON: %w", err)
	}
	const markdown, plain = "text/markdown; charset=utf-8", "text/plain; charset=utf-8"
	var all []Page
	for _, one := range []struct {
		path, contentType string
		body              func() ([]byte, error)
	}{
		{Home, "text/html; charset=utf-8", func() ([]byte, error) { return writeHTML(m) }},
		{Home + "/petgate.css", "text/css; charset=utf-8", Stylesheet},
		{Home + "/petgate.js", "text/javascript; charset=utf-8", asset("petgate.js")},
		{Home + ".md", markdown, func() ([]byte, error) { return writeText("docs.md", m) }},
		{"/llms.txt", plain, func() ([]byte, error) { return writeText("llms.txt", m) }},
		{"/openapi.yaml", "application/yaml", func() ([]byte, error) { return cfg.API.Source, nil }},
		{"/openapi.json", "application/json", func() ([]byte, error) { return asJSON, nil }},
	} {
		body, err := one.body()
		if err != nil {
			return nil, fmt.Errorf("portal: %s: %w", one.path, err)
		}
		page, err := newPage(one.path, one.contentType, body)
		if err != nil {
			return nil, fmt.Errorf("portal: %s: %w", one.path, err)
		}
		all = append(all, page)
	}
	return all, nil
}

// Stylesheet returns the stylesheet of the documentation. The operators' console begins with it, so that both look alike.
func Stylesheet() ([]byte, error) { return assets.ReadFile("assets/petgate.css") }

func asset(name string) func() ([]byte, error) {
	return func() ([]byte, error) { return assets.ReadFile("assets/" + name) }
}

func writeHTML(m *model) ([]byte, error) {
	t, err := template.New("").Funcs(template.FuncMap{"prose": prose, "inline": inline, "number": humanize.Comma}).Option("missingkey=error").ParseFS(assets, "assets/*.html")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = t.ExecuteTemplate(&page, "docs.html", m)
	return page.Bytes(), err
}

func writeText(name string, m *model) ([]byte, error) {
	t, err := texttemplate.New("").Funcs(texttemplate.FuncMap{"plain": plain}).Option("missingkey=error").ParseFS(assets, "assets/"+name)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = t.ExecuteTemplate(&page, name, m)
	return page.Bytes(), err
}

// readGuide executes the templates of assets/guide.md.
func readGuide(m *model) (map[string]string, error) {
	t, err := texttemplate.ParseFS(assets, "assets/guide.md")
	if err != nil {
		return nil, err
	}
	guide := map[string]string{}
	for _, one := range t.Templates() {
		var text bytes.Buffer
		if err := one.Execute(&text, m); err != nil {
			return nil, err
		}
		guide[one.Name()] = text.String()
	}
	return guide, nil
}

func newPage(path, contentType string, body []byte) (Page, error) {
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return Page{}, err
	}
	if _, err := w.Write(body); err != nil {
		return Page{}, err
	}
	if err := w.Close(); err != nil {
		return Page{}, err
	}
	sum := sha256.Sum256(body)
	return Page{
		Path: path, Type: contentType, Body: body, Gzip: compressed.Bytes(),
		ETag: `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
	}, nil
}
