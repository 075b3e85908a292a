package plot

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
)

// Usage is a number of requests in each of a row of equal periods.
type Usage struct {
	ID     string   // unique in the page
	Title  string   // what is shown, of whom, for example "Requests of acme by hour"
	Period string   // of one bar: hour or day
	Width  float64  // of the drawing. A wide one that a narrow screen scales down has too small letters
	Bars   []Bar    // in the order of time
	Limit  int64    // the most requests that a period admits; 0: none
	Series []string // names of the counts: Outcomes, or one
}

// Bar is one period. Its counts are stacked in the order of the series.
type Bar struct {
	Label  string // short, under the bar: 14:00
	Name   string // complete: 2026-03-01 14:00 UTC
	Counts []int64
}

// Outcomes are the usual series. They differ by pattern as well as by colour.
var Outcomes = []string{"served", "refused", "failed"}

const (
	plotTop     = 52 // below a legend of one line
	plotHeight  = 220
	lineHeight  = 18 // of the legend
	labelWidth  = 44 // of a label under a bar
	figureWidth = 7  // of a digit
)

// Stylesheet has the colours, for the page with the drawing. Without it everything has the colour
// of the page's text, and the patterns still tell the series apart.
const Stylesheet = `
.plot{--s0:#2f6f9f;--s1:#c05a1c;--s2:#8a2a5b}
.plot .s0{color:var(--s0)}.plot .s1{color:var(--s1)}.plot .s2{color:var(--s2)}
@media (prefers-color-scheme:dark){.plot{--s0:#6db3e8;--s1:#f0a060;--s2:#e07fb0}}
@media print{.plot{--s0:#444;--s1:#000;--s2:#000}}
`

// patterns of the series after the first, which is solid: stripes and dots. Their colour is that of
// the element which uses them.
var patterns = [...]string{
	1: `<pattern id="%s" class="s1" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<rect width="3" height="6" fill="currentColor"/></pattern>`,
	2: `<pattern id="%s" class="s2" width="5" height="5" patternUnits="userSpaceOnUse">` +
		`<circle cx="2" cy="2" r="1.5" fill="currentColor"/></pattern>`,
}

// SVG draws the bars with their limit. It has a title and a description for screen readers; each
// bar says its figures to a pointer.
func (u Usage) SVG() []byte {
	signs, baseline := u.legend()
	bottom := baseline + plotTop - 38 + plotHeight
	c := New(u.ID, u.Width, bottom+34, u.Title, u.summary())
	c.Raw("<defs>\n")
	for i := 1; i < len(u.Series); i++ {
		c.Raw(fmt.Sprintf(patterns[i], html.EscapeString(patternID(u.ID, i))) + "\n")
	}
	c.Raw("</defs>\n")
	c.Raw(`<g fill="currentColor">` + "\n")
	c.Text(10, 18, "start", u.Title)
	for _, s := range signs {
		u.draw(c, s)
	}

	step, most := scale(u.top())
	left := 16 + figureWidth*float64(len(humanize.Comma(most)))
	y := func(n int64) float64 { return bottom - plotHeight*float64(n)/float64(most) }
	for n := int64(0); n <= most; n += step {
		c.Raw(`<g opacity="0.25">`)
		c.Line([][2]float64{{left, y(n)}, {u.Width - 10, y(n)}}, "currentColor", 1, "")
		c.Raw("</g>\n")
		c.Text(left-6, y(n)+4, "end", humanize.Comma(n))
	}
	if len(u.Bars) > 0 {
		u.bars(c, left, y)
	}
	if u.Limit > 0 && u.Limit <= most {
		c.Line([][2]float64{{left, y(u.Limit)}, {u.Width - 10, y(u.Limit)}}, "currentColor", 1.5, limitDash)
	}
	c.Raw("</g>\n")
	return c.SVG()
}

// bars draws all bars of a series as one shape: a browser writes each shape with a pattern as a
// picture of its own into a PDF. Invisible rectangles above the shapes say the figures to a
// pointer.
func (u Usage) bars(c *Canvas, left float64, y func(int64) float64) {
	slot := (u.Width - 10 - left) / float64(len(u.Bars))
	wide := max(slot-max(1, slot/5), 0.5)
	every := int(math.Ceil(labelWidth / slot))
	shapes := make([]strings.Builder, len(u.Series))
	tips := Canvas{}
	for i, bar := range u.Bars {
		from := left + slot*float64(i)
		x := from + (slot-wide)/2
		base := int64(0)
		for s, n := range bar.Counts {
			if top, height := y(base+n), y(base)-y(base+n); n > 0 {
				fmt.Fprintf(&shapes[s], "M%s %sh%sv%sH%sz", num(x), num(top), num(wide), num(height), num(x))
				tips.Rect(x, top, wide, height, "none",
					fmt.Sprintf("%s: %s %s", bar.Name, humanize.Comma(n), u.Series[s]))
			}
			base += n
		}
		if i%every == 0 {
			c.Text(min(max(x+wide/2, left), u.Width-labelWidth/2), y(0)+18, "middle", bar.Label)
		}
	}
	for s := range shapes {
		if shapes[s].Len() > 0 {
			c.Raw(
				fmt.Sprintf(`<g class="s%d"><path d="%s" fill="%s"/></g>`+"\n", s, shapes[s].String(), paint(u.ID, s)),
			)
		}
	}
	c.Raw(`<g pointer-events="all">` + "\n" + tips.body.String() + "</g>\n")
}

// limitDash is the pattern of the line of the limit.
const limitDash = "6 3"

// sign is an entry of the legend, at a point of its baseline.
type sign struct {
	x, y   float64
	text   string
	series int // -1: the limit
}

func (u Usage) draw(c *Canvas, s sign) {
	if s.series < 0 {
		c.Line([][2]float64{{s.x, s.y - 4}, {s.x + 14, s.y - 4}}, "currentColor", 1.5, limitDash)
	} else {
		c.Raw(fmt.Sprintf(`<g class="s%d">`, s.series))
		c.Rect(s.x, s.y-10, 14, 12, paint(u.ID, s.series), "")
		c.Raw("</g>\n")
	}
	c.Text(s.x+20, s.y, "start", s.text)
}

// legend names the series and the lines, each beside its pattern, in as many lines as it needs.
// bottom is the baseline of the last one.
func (u Usage) legend() (signs []sign, bottom float64) {
	for i, name := range u.Series {
		if u.has(i) {
			signs = append(signs, sign{text: name, series: i})
		}
	}
	if u.Limit > 0 {
		text := "limit " + humanize.Comma(u.Limit)
		if _, most := scale(u.top()); u.Limit > most {
			text += " (above this picture)"
		}
		signs = append(signs, sign{text: text, series: -1})
	}
	x, bottom := 10.0, 38.0
	for i := range signs {
		length := 34 + figureWidth*float64(len(signs[i].text))
		if x > 10 && x+length-14 > u.Width {
			x, bottom = 10, bottom+lineHeight
		}
		signs[i].x, signs[i].y = x, bottom
		x += length
	}
	return signs, bottom
}

// paint is the fill of a series: the first is solid.
func paint(id string, series int) string {
	if series == 0 {
		return "currentColor"
	}
	return "url(#" + patternID(id, series) + ")"
}

func patternID(id string, series int) string { return fmt.Sprintf("%s-%d", id, series) }

func (u Usage) has(series int) bool {
	for _, bar := range u.Bars {
		if series < len(bar.Counts) && bar.Counts[series] > 0 {
			return true
		}
	}
	return false
}

// top is the largest number to show. A limit far above all bars would flatten them, so it is then
// left out.
func (u Usage) top() int64 {
	highest, _ := u.highest()
	if u.Limit > 0 && (u.Limit <= LimitInView*highest || highest == 0) {
		return max(highest, u.Limit)
	}
	return highest
}

// LimitInView times the height of the highest bar is the highest limit that is shown. A higher one
// would flatten the bars.
const LimitInView = 4

func (u Usage) highest() (n int64, bar Bar) {
	for _, b := range u.Bars {
		if sum := b.Sum(); sum > n {
			n, bar = sum, b
		}
	}
	return n, bar
}

// Sum adds up the counts.
func (b Bar) Sum() (n int64) {
	for _, count := range b.Counts {
		n += count
	}
	return n
}

// summary says in words what the bars show.
func (u Usage) summary() string {
	if len(u.Bars) == 0 {
		return "There were no requests."
	}
	totals := make([]int64, len(u.Series))
	for _, bar := range u.Bars {
		for s, n := range bar.Counts {
			totals[s] += n
		}
	}
	var parts []string
	for s, n := range totals {
		if n > 0 || s == 0 {
			parts = append(parts, humanize.Comma(n)+" "+u.Series[s])
		}
	}
	text := fmt.Sprintf("From %s to %s: %s.", u.Bars[0].Name, u.Bars[len(u.Bars)-1].Name, strings.Join(parts, ", "))
	if n, bar := u.highest(); n > 0 {
		text += fmt.Sprintf(" The highest %s is %s with %s.", u.Period, bar.Name, humanize.Comma(n))
	}
	if u.Limit > 0 {
		text += fmt.Sprintf(" The limit is %s in each %s.", humanize.Comma(u.Limit), u.Period)
	}
	return text
}

// scale returns the distance of lines and the top of an axis: 1, 2 or 5 times a power of ten, at
// most five lines.
func scale(highest int64) (step, top int64) {
	step = 1
	for power, i := int64(1), 0; highest > 5*step; i++ {
		step = []int64{2, 5, 10}[i%3] * power
		if i%3 == 2 {
			power = step
		}
	}
	return step, max((highest+step-1)/step, 1) * step
}
