package operate

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"petgate/shared/keystore"
)

// Flag is an argument by its JSON name: noExpires.
type Flag string

// String returns the argument as keyadmin writes it: --no-expires.
func (f Flag) String() string {
	if f == "scopes" { // keyadmin takes one at a time
		return "--scope"
	}
	var text strings.Builder
	for _, r := range string(f) {
		if unicode.IsUpper(r) {
			text.WriteByte('-')
		}
		text.WriteRune(unicode.ToLower(r))
	}
	return "--" + text.String()
}

// Command is a command of keyadmin, without the name of the program.
type Command string

// String returns the command in quotes.
func (c Command) String() string { return "`keyadmin " + string(c) + "`" }

// Text is a sentence for people. Its parts are a string, a Flag or a Command each, so that every
// program can write arguments by its own names.
type Text []any

// String returns the text as keyadmin writes it.
func (t Text) String() string { return t.With(Flag.String) }

// With returns the text with its arguments as a program writes them.
func (t Text) With(write func(Flag) string) string {
	var text strings.Builder
	for _, part := range t {
		if flag, isFlag := part.(Flag); isFlag {
			part = write(flag)
		}
		fmt.Fprint(&text, part)
	}
	return text.String()
}

// ArgumentError is an argument that is wrong, or several that do not fit together.
type ArgumentError struct {
	Argument Flag // empty: the text names them
	Text     Text
}

// Error returns the text as keyadmin writes it.
func (e *ArgumentError) Error() string { return e.With(Flag.String) }

// With returns the text, after the argument, as a program writes both.
func (e *ArgumentError) With(write func(Flag) string) string {
	text := e.Text.With(write)
	if e.Argument != "" {
		text = write(e.Argument) + ": " + text
	}
	return text
}

// First returns the argument, or the first one that the text names. Empty: it names none.
func (e *ArgumentError) First() Flag {
	if e.Argument != "" {
		return e.Argument
	}
	for _, part := range e.Text {
		if flag, isFlag := part.(Flag); isFlag {
			return flag
		}
	}
	return ""
}

// mistaken is an error about arguments. The text has strings, flags and commands.
func mistaken(text ...any) error { return &ArgumentError{Text: text} }

// wrongArgument is an error about one argument, or nil.
func wrongArgument(flag Flag, err error) error {
	if err == nil {
		return nil
	}
	return &ArgumentError{Argument: flag, Text: textOf(err)}
}

// textOf returns the text of an error, with the arguments and commands that it names.
func textOf(err error) Text {
	if wrong, isMarked := err.(*ArgumentError); isMarked {
		return wrong.Text
	}
	return Text{strings.ReplaceAll(err.Error(), "\n", "; ")}
}

// Mistake is what is wrong with an argument.
type Mistake struct {
	Name string
	Text Text
}

// NotFoundError names what does not exist. It is a keystore.ErrNotFound.
type NotFoundError struct {
	error
	Noun, Name string // tenant, plan, key, gateway or lost refusal
}

func (e NotFoundError) Unwrap() error { return e.error }

// notFound adds to keystore.ErrNotFound what was looked for.
func notFound(err error, noun, name string) error {
	if errors.Is(err, keystore.ErrNotFound) {
		return NotFoundError{err, noun, name}
	}
	return err
}
