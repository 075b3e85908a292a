package contract_test

import (
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/fleet"
	"petgate/shared/testkit/must"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// The page of the documentation is enough: its commands get the clients, its examples in shell and
// Go do what they say, and its plans are those in force when a change of them is confirmed. The
// programs of the other pages in shell and Go wait for the end of a ban.
func TestThePageIsEnough(t *testing.T) {
	t.Parallel()
	f := fleet.Start(t, fleet.Spec{Database: testkit.SQLite(t), Gateways: 1})
	f.MustKeyadmin("tenant", "create", "stranger")
	key := f.NewKey("stranger", "--scope", "pets:read,pets:write,usage:read")
	url, token := f.Gateways[0].URL, key.Token
	page := func() string {
		t.Helper()
		c := f.Gateways[0].Client()
		defer c.Close()
		return html.UnescapeString(c.Must(t, fleet.Request("GET /docs", "", "")).Body)
	}
	examples := func(pattern string) (found []string) {
		t.Helper()
		code := regexp.MustCompile(`(?s)<pre ` + pattern + `[^>]*><code>(.*?)</code>`)
		for _, m := range code.FindAllStringSubmatch(page(), -1) {
			found = append(found, m[1])
		}
		return found
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PETGATE_URL="+url, "PETGATE_TOKEN="+token)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}

	for _, example := range examples(`class="curl"`) {
		if out := run("sh", "-ec", example); !strings.HasPrefix(out[strings.Index(out, "HTTP/1.1 "):], "HTTP/1.1 20") {
			t.Errorf("%s\nis answered with\n%s", example, out)
		}
	}
	get := examples(`tabindex="0" aria-label="Commands that get the clients"`)
	must.Equal(t, len(get), 1, "blocks that get the clients")
	run("sh", "-ec", get[0])
	for _, name := range []string{"petgate/client.go", "petgate/types.gen.go", "petgate.ts", "schema.d.ts"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(text) < 1000 {
			t.Errorf("%s was not received (%v)", name, err)
		}
	}
	write(t, filepath.Join(dir, "go.mod"), "module example.com/pets\n\ngo 1.26\n")
	var program strings.Builder
	program.WriteString(
		"package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\t\"os\"\n\n\t\"example.com/pets/petgate\"\n)\n\n" +
			"func main() {\n\tfor _, example := range []func(context.Context) error{",
	)
	programs := examples(`class="go"`)
	for _, example := range programs {
		program.WriteString("func(ctx context.Context) error {\n" + example + "\nreturn nil\n},\n")
	}
	program.WriteString(
		"} {\n\t\tif err := example(context.Background()); err != nil {\n\t\t\tpanic(err)\n\t\t}\n\t}\n}\n",
	)
	write(t, filepath.Join(dir, "main.go"), program.String())
	if out := run("go", "run", "."); len(programs) != len(operations) || !strings.Contains(out, "stored 2\n") ||
		!strings.Contains(out, "Rex") ||
		!strings.Contains(out, "minute ") {
		t.Errorf("the %d examples in Go write\n%s", len(programs), out)
	}

	waits := func(page, language, file string, command ...string) {
		t.Helper()
		const banned = 5 * time.Second // on a busy machine, the program starts later
		text, err := os.ReadFile(page)
		blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		if err != nil || len(blocks) != 1 {
			t.Fatalf("%s has %d blocks of %s: %v", page, len(blocks), language, err)
		}
		write(t, filepath.Join(dir, file), blocks[0][1])
		k, began := f.NewKey("stranger"), time.Now()
		token = k.Token
		f.MustKeyadmin("ban", "add", k.ID, "--for", banned.String(), "--reason", "a test", "--yes")
		f.Gateways[0].Want(t, token, 429, "key_banned")
		if out, took := run(command[0], command[1:]...), time.Since(began); !strings.Contains(out, "Rex") ||
			took < banned {
			t.Errorf("%s: after %v:\n%s", page, took, out)
		}
	}
	waits("../../docs/api.md", "sh", "loop.sh", "sh", "-e", "loop.sh")
	must.Do(t, os.Mkdir(filepath.Join(dir, "loop"), 0o700))
	waits("../../shared/api/clients/go/README.md", "go", "loop/main.go", "go", "run", "./loop")

	row := func(plan, minute, day string) string {
		return `<th scope="row">` + plan + `</th>` +
			`<td class="number">` + minute + `</td><td class="number">` + day + `</td>`
	}
	if shown := page(); !strings.Contains(shown, row("pro", "300", "10,000")) || strings.Contains(shown, "gold") {
		t.Error("the page does not have the plans of a new database")
	}
	f.MustKeyadmin("plan", "update", "pro", "--minute", "301")
	f.MustKeyadmin("plan", "create", "gold", "--minute", "7", "--day", "70")
	if shown := page(); !strings.Contains(shown, row("pro", "301", "10,000")) ||
		!strings.Contains(shown, row("gold", "7", "70")) {
		t.Error("the page does not have the plans of confirmed changes")
	}
}
