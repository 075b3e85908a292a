package portal

import (
	"fmt"
	"strings"
)

// snippet is an example of a call in one language. It reads the key from the environment and never contains one.
type snippet struct{ Language, Name, Text string }

// snippets returns examples of a call of o. An example shows what to do after a 429, because that is what callers get wrong.
func snippets(o operation) []snippet {
	return []snippet{
		{"curl", "curl", curlSnippet(o)},
		{"go", "Go", goSnippet(o)},
		{"typescript", "TypeScript", typescriptSnippet(o)},
		{"python", "Python", pythonSnippet(o)},
	}
}

func curlSnippet(o operation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "curl -i \"$PETGATE_URL%s\" \\\n  -H \"Authorization: Bearer $PETGATE_TOKEN\"", o.Target)
	if o.Body != nil {
		fmt.Fprintf(&b, " \\\n  -H \"Content-Type: application/json\" \\\n  -d '%s'", o.Example)
	}
	return b.String()
}

func goSnippet(o operation) string {
	body, contentType := "nil", ""
	if o.Body != nil {
		body = "strings.NewReader(`" + o.Example + "`)"
		contentType = "request.Header.Set(\"Content-Type\", \"application/json\")\n"
	}
	return fmt.Sprintf(`url := os.Getenv("PETGATE_URL") + %q
request, err := http.NewRequest(%q, url, %s)
if err != nil {
	return err
}
request.Header.Set("Authorization", "Bearer "+os.Getenv("PETGATE_TOKEN"))
%sresponse, err := http.DefaultClient.Do(request)
if err != nil {
	return err
}
defer response.Body.Close()
if response.StatusCode == http.StatusTooManyRequests {
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	time.Sleep(time.Duration(seconds) * time.Second) // then repeat
}`, o.Target, o.Method, body, contentType)
}

func typescriptSnippet(o operation) string {
	options := "\n  headers: { Authorization: `Bearer ${process.env.PETGATE_TOKEN}` },\n"
	if o.Body != nil {
		options = fmt.Sprintf(`
  method: %q,
  headers: {
    Authorization: `+"`Bearer ${process.env.PETGATE_TOKEN}`"+`,
    "Content-Type": "application/json",
  },
  body: JSON.stringify(%s),
`, o.Method, o.Example)
	}
	return fmt.Sprintf("const url = `${process.env.PETGATE_URL}%s`;\nconst response = await fetch(url, {%s});\n"+`if (response.status === 429) {
  const seconds = Number(response.headers.get("Retry-After"));
  await new Promise((done) => setTimeout(done, seconds * 1000)); // then repeat
}`, o.Target, options)
}

func pythonSnippet(o operation) string {
	body := ""
	if o.Body != nil {
		body = "    json=" + o.Example + ",\n"
	}
	return fmt.Sprintf(`import os, time, requests

response = requests.%s(
    os.environ["PETGATE_URL"] + %q,
    headers={"Authorization": "Bearer " + os.environ["PETGATE_TOKEN"]},
%s    timeout=10,
)
if response.status_code == 429:
    time.sleep(int(response.headers["Retry-After"]))  # then repeat`, strings.ToLower(o.Method), o.Target, body)
}
