package portal

import (
	"bytes"
	"html/template"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// link is a link to an element of the page: [429](#status-429).
var link = regexp.MustCompile(`\[([^\]]*)\]\((#[\w-]+)\)`)

// plain returns a Markdown text without its links to elements of the page.
func plain(text string) string { return link.ReplaceAllString(text, "$1") }

// tag matches the tags of HTML that documents use for text. Others may be meant as text, such as
// <id>.
var tag = regexp.MustCompile(`(?i)</?(?:p|br|b|i|em|strong|code|pre|ul|ol|li|a|div|span|` +
	`table|thead|tbody|tr|td|th|h[1-6]|img|sup|sub|small|font)(?:\s[^<>]*)?/?>`)

// markdown writes CommonMark as HTML. Texts are somebody else's: HTML in them is shown, not used. A
// page has its own headings and loads no image from elsewhere.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodes{}, 1))))

type nodes struct{}

// RegisterFuncs implements renderer.NodeRenderer. No write is checked: the writer keeps its first
// error and returns it at the end.
func (nodes) RegisterFuncs(to renderer.NodeRendererFuncRegisterer) {
	type (
		writer = util.BufWriter
		status = ast.WalkStatus
	)
	around := func(open, end string) renderer.NodeRendererFunc {
		return func(w writer, _ []byte, _ ast.Node, entering bool) (status, error) {
			text := end
			if entering {
				text = open
			}
			_, _ = w.WriteString(text)
			return ast.WalkContinue, nil
		}
	}
	to.Register(ast.KindHeading, around("<p><strong>", "</strong></p>\n"))
	to.Register(ast.KindImage, around("<em>", "</em>"))
	to.Register(ast.KindRawHTML, func(w writer, source []byte, n ast.Node, entering bool) (status, error) {
		if entering {
			template.HTMLEscape(w, n.(*ast.RawHTML).Segments.Value(source))
		}
		return ast.WalkSkipChildren, nil
	})
	to.Register(ast.KindHTMLBlock, func(w writer, source []byte, n ast.Node, entering bool) (status, error) {
		if entering {
			_, _ = w.WriteString("<p>")
			template.HTMLEscape(w, n.Lines().Value(source))
			_, _ = w.WriteString("</p>\n")
		}
		return ast.WalkContinue, nil
	})
}

// prose returns a text of the document as HTML.
func prose(text string) template.HTML {
	var b bytes.Buffer
	err := markdown.Convert([]byte(tag.ReplaceAllString(text, "")), &b)
	return template.HTML(possible(b.String(), err))
}

// inline returns a sentence of the document as HTML that needs no paragraph of its own.
func inline(text string) template.HTML {
	whole := prose(text)
	one := strings.TrimSuffix(strings.TrimPrefix(string(whole), "<p>"), "</p>\n")
	if strings.Contains(one, "<p>") {
		return whole
	}
	return template.HTML(one)
}
