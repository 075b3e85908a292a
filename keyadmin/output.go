package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"petgate/shared/operate"
)

// stdio is everything that a command uses besides the database. Tests replace it.
type stdio struct {
	In       io.Reader
	Out, Err io.Writer

	// Whether each of them is a terminal. Questions and narrow tables are for terminals only.
	InTerminal, OutTerminal, ErrTerminal bool

	Program string                     // how keyadmin was called, for the commands in messages: bin/keyadmin
	Size    func() (width, height int) // of the terminal; 0: not known

	Secret func() ([]byte, error)                     // one line from the terminal, not echoed
	Clock  func() time.Time                           // now
	Sleep  func(context.Context, time.Duration) error // returns nil after the duration, or the context's error
	Random io.Reader                                  // for tokens and IDs
}

// system returns the stdio of the process.
func system() stdio {
	terminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	size := func() (width, height int) {
		width, height, _ = term.GetSize(int(os.Stdout.Fd()))
		return width, height
	}
	return stdio{
		Program: os.Args[0], Size: size,
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal: terminal(os.Stdin), OutTerminal: terminal(os.Stdout), ErrTerminal: terminal(os.Stderr),
		Secret: readSecret, Clock: time.Now, Sleep: operate.Sleep, Random: rand.Reader,
	}
}

// readSecret reads a line without echoing it. An interrupt restores the echo before it ends the
// process.
func readSecret() ([]byte, error) {
	stdin := int(os.Stdin.Fd())
	state, err := term.GetState(stdin)
	if err != nil {
		return nil, err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		if _, ok := <-interrupted; ok {
			_ = term.Restore(stdin, state)
			os.Exit(int(exitFailed))
		}
	}()
	line, err := term.ReadPassword(stdin)
	signal.Stop(interrupted)
	close(interrupted)
	return line, err
}

// note writes a message for people to standard error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.Err, a.asCalled(fmt.Sprintf(format, args...)))
}

// calls are the places where texts name a command: in quotes, after a colon, at the beginning of
// help, and in its examples.
var calls = regexp.MustCompile("(?m)([`\"]|: |^    (?:[^#\\s][^\\n]*?[ (])?)keyadmin ")

// asCalled replaces keyadmin in the commands of a text by the name by which it was called, so that
// they work when they are pasted.
func (a *app) asCalled(text string) string {
	if a.Program == "" || a.Program == "keyadmin" {
		return text
	}
	return calls.ReplaceAllStringFunc(text, func(call string) string {
		return strings.TrimSuffix(call, "keyadmin ") + operate.ShellWord(a.Program) + " "
	})
}

// format is how data is printed.
type format string

func (f *format) UnmarshalText(text []byte) error {
	*f = format(text)
	if *f != "table" && *f != "json" && *f != "csv" {
		return fmt.Errorf("%q is not a format: use table, json or csv", text)
	}
	return nil
}

// asData reports whether the output is for programs: JSON or CSV.
func (a *app) asData() bool { return a.cli.Output != "table" }

// print writes data to standard output as JSON, as CSV, or as the table t in the width of the
// terminal.
func (a *app) print(data any, t table) error {
	var out bytes.Buffer
	var omitted []string
	switch a.cli.Output {
	case "json":
		if err := operate.WriteJSON(&out, data); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
	case "csv":
		if err := operate.WriteCSV(&out, data); err != nil {
			return fmt.Errorf("write CSV: %w", err)
		}
	default:
		if len(t.rows) == 0 {
			if t.none != "" {
				a.note("%s", t.none)
			}
			return nil
		}
		width := a.width()
		t, omitted = t.fit(width)
		t.write(&out, width)
	}
	if _, err := a.Out.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	if len(omitted) > 0 {
		a.note("The terminal is too narrow for: %s. A wider one, -o json and -o csv show everything.",
			strings.Join(omitted, ", "))
	}
	return nil
}

// widthMin is the narrowest terminal that tables are fitted to.
const widthMin = 40

// width is how many columns a table may have: $COLUMNS, else the width of the terminal. 0: there is
// no limit, because there is no terminal or its width is not known.
func (a *app) width() int {
	if !a.OutTerminal {
		return 0
	}
	width, _ := a.Size()
	if columns, err := strconv.Atoi(a.env["COLUMNS"]); err == nil && columns > 0 {
		width = columns
	}
	return operate.Either(width == 0, 0, max(width, widthMin))
}

// printSecret writes a new token, which is never shown again. It is alone on its line, for
// TOKEN=$(keyadmin key create …).
func (a *app) printSecret(data any, token string) error {
	if a.asData() {
		return a.print(data, table{})
	}
	if _, err := fmt.Fprintln(a.Out, token); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// ask asks a person at a terminal to confirm. With --yes it does not ask. Without a terminal it
// cannot, and --yes is needed.
func (a *app) ask(yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.atTerminal() {
		return usageErrorf("%s\nThere is no terminal to ask at: add --yes to the command. Nothing was changed.",
			question)
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", operate.Printable(question))
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if errors.Is(err, io.EOF) {
		fmt.Fprintln(a.Err)
	} else if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}

// atTerminal reports whether there is a person to ask.
func (a *app) atTerminal() bool { return a.InTerminal && a.ErrTerminal }

// tokenBytesMax is how much of standard input is read to find a token. A token is much shorter.
const tokenBytesMax = 4096

// token reads a token: the first line of standard input that is not blank, without surrounding
// space.
func (a *app) token() ([]byte, error) {
	if a.InTerminal {
		fmt.Fprint(a.Err, "Token (not shown): ")
		line, err := a.Secret()
		fmt.Fprintln(a.Err)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		a.In = bytes.NewReader(line)
	}
	lines := bufio.NewScanner(io.LimitReader(a.In, tokenBytesMax))
	for lines.Scan() {
		if token := bytes.TrimSpace(lines.Bytes()); len(token) > 0 {
			return bytes.Clone(token), nil
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	return nil, usageErrorf("standard input has no token: keyadmin %s < FILE", a.called)
}

// count formats a whole number with thousands separators.
func count(n int64) string { return humanize.Comma(n) }
