package portal

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"petgate/shared/api"
)

// snippet is an example of a call in one language. Language is the name of its template, too.
type snippet struct{ Language, Name, Text string }

var languages = []snippet{
	{"curl", "curl", ""}, {"go", "Go", ""}, {"typescript", "TypeScript", ""}, {"python", "Python", ""},
}

// snippets returns examples of a call of o. samples are the document's own, as x-codeSamples; they
// replace those that are made here.
func snippets(o *operation, samples any) []snippet {
	all := slices.Clone(languages)
	if o.Body != nil && !o.Body.IsText {
		all = all[:1] // only curl reads a file or makes a form in one line
	}
	var own []struct{ Lang, Source string }
	if text, err := json.Marshal(samples); err == nil {
		_ = json.Unmarshal(text, &own) // samples in another form are not shown
	}
	for i := range all {
		var text strings.Builder
		if err := texts.ExecuteTemplate(&text, all[i].Language, o); err != nil {
			panic(fmt.Sprintf("bug: the example in %s: %v", all[i].Name, err))
		}
		all[i].Text = text.String()
		for _, sample := range own {
			if strings.EqualFold(all[i].Language, sample.Lang) {
				all[i].Text = strings.TrimSpace(sample.Source)
			}
		}
	}
	return all
}

// sent is a header field of a call besides Authorization.
type sent struct {
	Name, Value   string
	IsRequestName bool // the value is a new name for the request
}

// Sent returns the fields that a call must have, and a name for the request if it takes one.
func (o *operation) Sent() (fields []sent) {
	for _, p := range o.Parameters {
		switch {
		case p.In == "header" && strings.EqualFold(p.Name, api.KeyHeader):
			fields = append(fields, sent{Name: api.KeyHeader, IsRequestName: true})
		case p.In == "header" && p.IsRequired:
			fields = append(fields, sent{Name: p.Name, Value: p.Example})
		}
	}
	if o.Body != nil && o.Body.IsText {
		fields = append(fields, sent{Name: "Content-Type", Value: o.Body.MediaType})
	}
	return fields
}

// NeedsMethod reports whether curl must be told the method: it takes a call with a body for a POST,
// and others for a GET.
func (o *operation) NeedsMethod() bool {
	return o.Method != http.MethodGet && (o.Body == nil || o.Method != http.MethodPost) ||
		o.Method == http.MethodGet && o.Body != nil
}

// shell quotes a text for a shell.
func shell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// escaped writes a text into a shell's double quotes, or into a template of TypeScript.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`")

// goText writes a text as Go source, in several lines if it has some.
func goText(text string) string {
	if strconv.CanBackquote(strings.ReplaceAll(text, "\n", "")) {
		return "`" + text + "`"
	}
	return strconv.Quote(text)
}
