package portal

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"petgate/shared/api"
)

// snippet is an example of a call in one language. It reads the key from the environment and never contains one.
type snippet struct{ Language, Name, Text string }

// snippets returns examples of a call of o. An example shows what to do after a 429, because that is what callers get wrong. samples are
// the document's own, as x-codeSamples; they replace those that are made here.
func snippets(o *operation, samples any) []snippet {
	all := []snippet{{"curl", "curl", curlSnippet(o)}}
	if o.Body == nil || o.Body.IsText {
		all = append(all, snippet{"go", "Go", goSnippet(o)}, snippet{"typescript", "TypeScript", typescriptSnippet(o)}, snippet{"python", "Python", pythonSnippet(o)})
	}
	var own []struct{ Lang, Source string }
	if text, err := json.Marshal(samples); err == nil {
		_ = json.Unmarshal(text, &own) // what is written otherwise is not shown
	}
	for _, sample := range own {
		if i := slices.IndexFunc(all, func(s snippet) bool { return strings.EqualFold(s.Language, sample.Lang) }); i >= 0 {
			all[i].Text = strings.TrimSpace(sample.Source)
		}
	}
	return all
}

// fields are the header fields of a call besides Authorization: those that it must have, and a name for the request if it takes one.
func (o *operation) fields(requestName string) (fields [][2]string) {
	for _, p := range o.Parameters {
		switch {
		case p.In == "header" && strings.EqualFold(p.Name, api.KeyHeader):
			fields = append(fields, [2]string{api.KeyHeader, requestName})
		case p.In == "header" && p.IsRequired:
			fields = append(fields, [2]string{p.Name, strconv.Quote(p.Example)})
		}
	}
	if o.Body != nil && o.Body.IsText {
		fields = append(fields, [2]string{"Content-Type", strconv.Quote(o.Body.MediaType)})
	}
	return fields
}

// shell quotes a text for a shell.
func shell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func curlSnippet(o *operation) string {
	var b strings.Builder
	b.WriteString("curl -i ")
	if hasBody := o.Body != nil && o.Method == "POST"; o.Method != "GET" && !hasBody || o.Method == "GET" && o.Body != nil {
		b.WriteString("-X " + o.Method + " ")
	}
	fmt.Fprintf(&b, "\"$PETGATE_URL%s\"", o.Target)
	if !o.IsPublic {
		b.WriteString(" \\\n  -H \"Authorization: Bearer $PETGATE_TOKEN\"")
	}
	for _, f := range o.fields("$(openssl rand -hex 16)") {
		fmt.Fprintf(&b, " \\\n  -H \"%s: %s\"", f[0], strings.Trim(f[1], `"`))
	}
	if o.Body == nil {
		return b.String()
	}
	switch form, _ := o.Body.Example.(object); {
	case o.Body.IsText:
		b.WriteString(" \\\n  -d " + shell(o.Body.Text))
	case form != nil:
		for _, p := range form {
			b.WriteString(" \\\n  -F " + shell(p.name+"="+strings.Trim(jsonLiterals.format(p.value, ""), `"`)))
		}
	default:
		fmt.Fprintf(&b, " \\\n  -H \"Content-Type: %s\" \\\n  --data-binary @file", o.Body.MediaType)
	}
	return b.String()
}

func goSnippet(o *operation) string {
	body := "nil"
	if o.Body != nil {
		body = "strings.NewReader(" + strconv.Quote(o.Body.Text) + ")"
		if strconv.CanBackquote(strings.ReplaceAll(o.Body.Text, "\n", "")) {
			body = "strings.NewReader(`" + o.Body.Text + "`)"
		}
	}
	var fields strings.Builder
	if !o.IsPublic {
		fields.WriteString("request.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"PETGATE_TOKEN\"))\n")
	}
	for _, f := range o.fields("rand.Text()") {
		fmt.Fprintf(&fields, "request.Header.Set(%q, %s)\n", f[0], f[1])
	}
	return fmt.Sprintf(`url := os.Getenv("PETGATE_URL") + %q
request, err := http.NewRequest(%q, url, %s)
if err != nil {
	return err
}
%sresponse, err := http.DefaultClient.Do(request)
if err != nil {
	return err
}
defer response.Body.Close()
if response.StatusCode == http.StatusTooManyRequests {
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	time.Sleep(time.Duration(seconds) * time.Second) // then repeat
}`, o.Target, o.Method, body, fields.String())
}

func typescriptSnippet(o *operation) string {
	var options strings.Builder
	if o.Method != "GET" {
		fmt.Fprintf(&options, "  method: %q,\n", o.Method)
	}
	options.WriteString("  headers: {\n")
	if !o.IsPublic {
		options.WriteString("    Authorization: `Bearer ${process.env.PETGATE_TOKEN}`,\n")
	}
	for _, f := range o.fields("crypto.randomUUID()") {
		fmt.Fprintf(&options, "    %q: %s,\n", f[0], f[1])
	}
	options.WriteString("  },\n")
	if o.Body != nil {
		text := quote(o.Body.Text)
		if isJSON(o.Body.MediaType) {
			text = "JSON.stringify(" + jsonLiterals.format(o.Body.Example, "  ") + ")"
		}
		options.WriteString("  body: " + text + ",\n")
	}
	return fmt.Sprintf("const url = `${process.env.PETGATE_URL}%s`;\nconst response = await fetch(url, {\n%s});\n"+`if (response.status === 429) {
  const seconds = Number(response.headers.get("Retry-After"));
  await new Promise((done) => setTimeout(done, seconds * 1000)); // then repeat
}`, o.Target, options.String())
}

func pythonSnippet(o *operation) string {
	modules, fields, body := "os, time, requests", "", ""
	if !o.IsPublic {
		fields = "        \"Authorization\": \"Bearer \" + os.environ[\"PETGATE_TOKEN\"],\n"
	}
	for _, f := range o.fields("str(uuid.uuid4())") {
		if f[0] == api.KeyHeader {
			modules = "os, time, uuid, requests"
		}
		fields += fmt.Sprintf("        %q: %s,\n", f[0], f[1])
	}
	if o.Body != nil {
		body = "    data=" + quote(o.Body.Text) + ",\n"
		if isJSON(o.Body.MediaType) {
			body = "    json=" + pythonLiterals.format(o.Body.Example, "    ") + ",\n"
		}
	}
	return fmt.Sprintf(`import %s

response = requests.request(
    %q,
    os.environ["PETGATE_URL"] + %q,
    headers={
%s    },
%s    timeout=10,
)
if response.status_code == 429:
    time.sleep(int(response.headers["Retry-After"]))  # then repeat`, modules, o.Method, o.Target, fields, body)
}
