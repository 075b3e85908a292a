package portal

import (
	"html/template"
	"regexp"
	"strings"
)

// link is a link to an element of the page: [429](#status-429).
var link = regexp.MustCompile(`\[([^\]]*)\]\((#[\w-]+)\)`)

// plain returns a Markdown text without its links to elements of the page.
func plain(text string) string { return link.ReplaceAllString(text, "$1") }

// inline returns a sentence of the document as HTML. Only `code` and links to elements of the page are markup in it.
func inline(text string) template.HTML {
	var b strings.Builder
	isCode := false
	for i, part := range strings.Split(text, "`") {
		if i > 0 {
			if isCode = !isCode; isCode {
				b.WriteString("<code>")
			} else {
				b.WriteString("</code>")
			}
		}
		b.WriteString(template.HTMLEscapeString(part))
	}
	if isCode {
		b.WriteString("</code>")
	}
	return template.HTML(link.ReplaceAllString(b.String(), `<a href="$2">$1</a>`))
}

// prose returns paragraphs of the document as HTML.
func prose(text string) template.HTML {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		b.WriteString("<p>" + string(inline(paragraph)) + "</p>\n")
	}
	return template.HTML(b.String())
}
