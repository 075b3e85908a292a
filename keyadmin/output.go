package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// stdio is everything that a command uses besides the database. Tests replace it.
type stdio struct {
	In       io.Reader
	Out, Err io.Writer

	// Whether each of them is a terminal. Questions and colours are for terminals only.
	InTerminal, OutTerminal, ErrTerminal bool

	Secret func() ([]byte, error)                     // one line from the terminal, not echoed
	Clock  func() time.Time                           // now
	Sleep  func(context.Context, time.Duration) error // returns nil after the duration, or the context's error
	Random io.Reader                                  // for tokens and IDs
}

// system returns the stdio of the process.
func system() stdio {
	terminal := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return stdio{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal: terminal(os.Stdin), OutTerminal: terminal(os.Stdout), ErrTerminal: terminal(os.Stderr),
		Secret: readSecret, Clock: time.Now, Sleep: sleep, Random: rand.Reader,
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readSecret reads a line without echoing it. An interrupt restores the echo before it ends the process.
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
	fmt.Fprintf(a.Err, format+"\n", args...)
}

// warn writes a highlighted note.
func (a *app) warn(format string, args ...any) {
	a.note("%s", a.style(a.ErrTerminal, yellow, fmt.Sprintf(format, args...)))
}

const (
	bold   = "1"
	yellow = "33"
)

// style colours text on a terminal, unless NO_COLOR is set (no-color.org) or the terminal has no colours.
func (a *app) style(terminal bool, code, text string) string {
	if !terminal || a.env["NO_COLOR"] != "" || a.env["TERM"] == "dumb" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (a *app) asJSON() bool { return a.cli.Output == "json" }

// print writes data to standard output as JSON or as the table t.
func (a *app) print(data any, t table) error {
	var out bytes.Buffer
	if a.asJSON() {
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(data); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
	} else {
		t.write(&out, func(head string) string { return a.style(a.OutTerminal, bold, head) })
	}
	if _, err := a.Out.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// printSecret writes a new token, which is never shown again. It is alone on its line, for TOKEN=$(keyadmin key create …).
func (a *app) printSecret(data any, token string) error {
	if a.asJSON() {
		return a.print(data, table{})
	}
	if _, err := fmt.Fprintln(a.Out, a.style(a.OutTerminal, bold, token)); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// table has rows under a head. Without a head, each row is a name and its value.
type table struct {
	head []string
	rows [][]string
}

// gap separates two columns.
const gap = "  "

func (t table) write(w *bytes.Buffer, style func(string) string) {
	lines := t.rows
	if t.head != nil {
		lines = append([][]string{t.head}, t.rows...)
	}
	var widths []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, line := range lines {
		for i, cell := range line {
			text := printable(cell)
			if i < len(line)-1 {
				text += strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + gap
			}
			if t.head != nil && n == 0 || t.head == nil && i == 0 {
				text = style(text)
			}
			w.WriteString(text)
		}
		w.WriteByte('\n')
	}
}

// printable replaces characters that could move a terminal's cursor or change its colours.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, text)
}

// ask asks a person at a terminal to confirm. Without a terminal, or with --yes, it does not ask.
func (a *app) ask(yes bool, format string, args ...any) error {
	if yes || !a.InTerminal || !a.ErrTerminal {
		return nil
	}
	fmt.Fprintf(a.Err, "%s [y/N] ", a.style(true, yellow, fmt.Sprintf(format, args...)))
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

// tokenBytesMax is how much of standard input is read to find a token. A token is much shorter.
const tokenBytesMax = 4096

// token reads a token: the first line of standard input that is not blank, without surrounding space.
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
	return nil, usageErrorf("standard input has no token: use keyadmin … < FILE")
}

// span formats a duration for people.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", d/day)
}

// count formats a whole number with thousands separators.
func count(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
