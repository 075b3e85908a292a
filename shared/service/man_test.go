package service_test

import (
	"bytes"
	"strings"
	"testing"

	"petgate/shared/service"
)

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

// A manual page has the help texts of the program and of its commands, without what roff would take for commands.
func TestManualPage(t *testing.T) {
	f := func(target any, wants ...string) {
		t.Helper()
		var out bytes.Buffer
		command, err := service.CommandLine{Program: "prog", About: "A program.\n\nIt does much.", Args: []string{"--man"}, Stdout: &out}.Parse(target)
		if command != nil || err != nil {
			t.Fatalf("%v, %v", command, err)
		}
		for _, want := range append(wants, ".TH PROG 1 ", ".SH NAME\nprog \\- A program.\n", "\nIt does much.\n") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, &out)
			}
		}
	}
	f(&settings{}, `  \-\-ban\-after=30 `, `\-\-[no\-]pprof`, "\n  TEST_DATABASE\n")
	f(&commands{}, ".SS key create\n", `Issue a key\[u2026]`, "Whose key it is.", `\-n, \-\-name=NAME`, "\n\\&.dot\n", `prog key create acme \-n 'a\eb'`)
}
