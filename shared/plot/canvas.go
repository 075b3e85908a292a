// Package plot draws SVG. Its functions are pure: values in, a document out. They may be called
// from several goroutines.
package plot

import (
	"fmt"
	"html"
	"strings"
)

// Canvas builds an SVG of a fixed size. The unit of all positions and lengths is the SVG's own, a
// pixel at full size. Texts are escaped. A Canvas is not safe for concurrent use.
type Canvas struct {
	width, height float64
	body          strings.Builder
	title, about  string
	id            string
}

// New returns an empty canvas. Screen readers read title and about, which may be empty. id makes
// the IDs in the SVG unique in a page that has several drawings.
func New(id string, width, height float64, title, about string) *Canvas {
	return &Canvas{id: id, width: width, height: height, title: title, about: about}
}

// Text writes text at a point of its baseline. anchor is start, middle or end.
func (c *Canvas) Text(x, y float64, anchor, text string) {
	fmt.Fprintf(&c.body, `<text x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", num(x), num(y), anchor,
		html.EscapeString(text))
}

// Rect fills a rectangle. paint is an SVG paint, such as a colour or url(#id). A tip, which may be
// empty, is shown to a pointer that rests on the rectangle.
func (c *Canvas) Rect(x, y, width, height float64, paint, tip string) {
	fmt.Fprintf(&c.body, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"`, num(x), num(y), num(width),
		num(height), paint)
	if tip == "" {
		c.body.WriteString("/>\n")
		return
	}
	fmt.Fprintf(&c.body, "><title>%s</title></rect>\n", html.EscapeString(tip))
}

// Line draws a line through points. dash is an SVG dash pattern; empty: the line is solid.
func (c *Canvas) Line(points [][2]float64, paint string, width float64, dash string) {
	path := make([]string, len(points))
	for i, p := range points {
		path[i] = num(p[0]) + "," + num(p[1])
	}
	if dash != "" {
		dash = ` stroke-dasharray="` + dash + `"`
	}
	fmt.Fprintf(&c.body, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%s"%s/>`+"\n",
		strings.Join(path, " "), paint, num(width), dash)
}

// Raw adds elements as they are.
func (c *Canvas) Raw(svg string) { c.body.WriteString(svg) }

// SVG returns the document. It can be a file of its own or a part of an HTML page.
func (c *Canvas) SVG() []byte {
	var out strings.Builder
	fmt.Fprintf(
		&out,
		`<svg xmlns="http://www.w3.org/2000/svg" class="plot" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s" `+
			`role="img" aria-labelledby="%[3]s-title %[3]s-desc" font-family="sans-serif" font-size="12">`+"\n",
		num(c.width),
		num(c.height),
		html.EscapeString(c.id),
	)
	fmt.Fprintf(&out, "<title id=\"%[1]s-title\">%[2]s</title>\n<desc id=\"%[1]s-desc\">%[3]s</desc>\n",
		html.EscapeString(c.id), html.EscapeString(c.title), html.EscapeString(c.about))
	out.WriteString(c.body.String() + "</svg>\n")
	return []byte(out.String())
}

// num writes a number with at most one decimal.
func num(x float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}
