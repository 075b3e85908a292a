package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"petgate/shared/operate"
)

func TestTable(t *testing.T) {
	var out bytes.Buffer
	table{head: []string{"NAME", "N"}, rows: [][]string{{"é", "1"}, {"日本語の会社", "4"}, {"a\x1b[31m\nb", "22"}, {"\u202eevil", "3"}}}.write(&out, 0,
		func(head string) string { return "\x1b[1m" + head + "\x1b[0m" })
	want := "\x1b[1mNAME\x1b[0m          \x1b[1mN\x1b[0m\n" +
		"é             1\n" +
		"日本語の会社  4\n" +
		"a?[31m?b      22\n" +
		"?evil         3\n"
	if out.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestReadToken(t *testing.T) {
	broken := errors.New("broken pipe")
	for _, c := range []struct {
		name, stdin, want string
	}{
		{"a line", "token\n", "token"},
		{"no newline", "token", "token"},
		{"Windows", "token\r\n", "token"},
		{"pasted", "\n\n \t token \t\nrest\n", "token"},
		{"nothing", "", ""},
		{"blank", " \n\t\n", ""},
		{"endless", strings.Repeat("x", 10*tokenBytesMax), strings.Repeat("x", tokenBytesMax)},
	} {
		a := &app{stdio: stdio{In: strings.NewReader(c.stdin)}}
		got, err := a.token()
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: token = %q, %v", c.name, got, err)
		}
	}
	a := &app{stdio: stdio{In: iotest.ErrReader(broken)}}
	if _, err := a.token(); !errors.Is(err, broken) {
		t.Errorf("token from a broken pipe: %v", err)
	}
	a = &app{stdio: stdio{InTerminal: true, Err: &bytes.Buffer{}, Secret: func() ([]byte, error) { return nil, broken }}}
	if _, err := a.token(); !errors.Is(err, broken) {
		t.Errorf("token from a broken terminal: %v", err)
	}
}

// If the output cannot be written, the command fails: a token that was not shown is lost.
func TestBrokenOutput(t *testing.T) {
	a := &app{stdio: stdio{Out: brokenWriter{}}, cli: &cli{Output: "json"}}
	if err := a.printSecret(operate.KeyView{}, "token"); err == nil {
		t.Error("JSON to a broken pipe is no error")
	}
	a.cli.Output = "table"
	if err := a.printSecret(operate.KeyView{}, "token"); err == nil {
		t.Error("a token to a broken pipe is no error")
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// Notes are broken at spaces, but commands are not, so that they can be copied.
func TestNotesFit(t *testing.T) {
	var said strings.Builder
	a := &app{stdio: stdio{Err: &said, ErrTerminal: true, Width: 60, Program: "bin/keyadmin"}, env: map[string]string{"NO_COLOR": "1"}}
	a.note("Created tenant a-name-of-some-length on plan free. Its first key: keyadmin key create a-name-of-some-length --name ci\n" +
		"  each line of this has its indentation, also where it is broken, and `keyadmin tenant list` stays whole")
	want := `Created tenant a-name-of-some-length on plan free. Its first
key: bin/keyadmin key create a-name-of-some-length --name ci
  each line of this has its indentation, also where it is
  broken, and ` + "`bin/keyadmin tenant list`" + ` stays whole
`
	if said.String() != want {
		t.Errorf("a note:\n%s\nwant:\n%s", said.String(), want)
	}
	said.Reset()
	a.ErrTerminal = false
	if a.note("%s", strings.Repeat("word ", 30)); strings.Count(said.String(), "\n") != 1 {
		t.Errorf("without a terminal, a note is broken:\n%s", said.String())
	}
}
