package service_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"petgate/shared/service"
)

func described(t *testing.T, target any, argument string) string {
	t.Helper()
	var out bytes.Buffer
	command, err := service.CommandLine{Program: "prog", About: "A program.\n\nIt does much.", Args: []string{argument}, Stdout: &out}.Parse(target)
	if command != nil || err != nil {
		t.Fatalf("%s: %v, %v", argument, command, err)
	}
	return out.String()
}

func TestManualPage(t *testing.T) {
	page := described(t, &settings{}, "--man")
	for _, want := range []string{
		".TH PROG 1 ", ".SH NAME\nprog \\- A program.\n", ".SH DESCRIPTION\nIt does much.\n",
		".TP\n\\fB\\-\\-ban\\-after\\fR=\\fI30\\fR\nStrikes. ($TEST_BAN_AFTER)\n", ".TP\n\\fB\\-\\-[no\\-]pprof\\fR\n", ".TP\n.B TEST_DATABASE\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

// commands is a program with commands.
type commands struct {
	Key struct {
		Create create `cmd:"" help:"Issue a key\u2026"`
	} `cmd:"" help:"Keys."`
}

type create struct {
	Tenant string `arg:"" help:"Whose key it is."`
	Name   string `short:"n" placeholder:"NAME" help:"Its name."`
}

func (create) Help() string { return ".dot\n\n    prog key create acme -n 'a\\b'" }

func TestManualPageOfCommands(t *testing.T) {
	page := described(t, &commands{}, "--man")
	const want = ".SS key create <tenant>\nIssue a key\\[u2026]\n.TP\n\\fItenant\\fR\nWhose key it is.\n" +
		".TP\n\\fB\\-n, \\-\\-name\\fR=\\fINAME\\fR\nIts name.\n.PP\n\\&.dot\n.PP\n.EX\n    prog key create acme \\-n 'a\\eb'\n.EE\n"
	if !strings.HasSuffix(page, want) {
		t.Errorf("the page is\n%s\nwant at its end\n%s", page, want)
	}
	if _, err := (service.CommandLine{Program: "prog", Args: []string{"--completion-bash"}, Stdout: &bytes.Buffer{}}).Parse(&commands{}); err == nil {
		t.Error("commands are completed by their flags")
	}
}

func TestCompletionScripts(t *testing.T) {
	for argument, want := range map[string]string{
		"--completion-bash": " --check --probe --version --listen --admin-listen --ban-after --proxies' prog\n",
		"--completion-zsh":  "  '--ban-after[Strikes.]:ban-after:_default' \\\n",
		"--completion-fish": "complete -c prog -l ban-after -r -d 'Strikes.'\n",
	} {
		if script := described(t, &settings{}, argument); !strings.Contains(script, want) || strings.Contains(script, "database") {
			t.Errorf("%s: no %q, or a secret, in\n%s", argument, want, script)
		}
	}
	if words := strings.Fields(described(t, &settings{}, "--completion-bash")); !slices.Contains(words, "--no-pprof") {
		t.Errorf("--no-pprof is missing: %q", words)
	}
}
