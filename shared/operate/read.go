package operate

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"petgate/shared/core/apikey"
)

// Argument is one field of a struct of arguments that programs and browsers send.
type Argument struct {
	reflect.StructField
	Name       string
	IsRequired bool
	Default    string // empty: there is none
}

// ArgumentsOf lists the arguments of a type, also those of embedded structs.
func ArgumentsOf(t reflect.Type) (all []Argument) {
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); name != "" {
			_, isRequired := f.Tag.Lookup("required")
			all = append(all, Argument{f, name, isRequired, f.Tag.Get("default")})
		}
	}
	return all
}

// IsList reports whether the argument may have more than one value.
func (a Argument) IsList() bool { return a.Type.Kind() == reflect.Slice }

// Mistake is what is wrong with an argument.
type Mistake struct{ Name, Text string }

// ReadArguments sets arguments to what is given as text by their names, or to their defaults.
func ReadArguments(into reflect.Value, given map[string][]string) (mistakes []Mistake) {
	for _, a := range ArgumentsOf(into.Type()) {
		texts, isGiven := given[a.Name]
		if !isGiven && a.Default != "" {
			texts, isGiven = []string{a.Default}, true
		}
		var err error
		switch to := into.FieldByIndex(a.Index); {
		case !isGiven && a.IsRequired:
			err = errors.New("it is missing: " + a.Tag.Get("help"))
		case !isGiven:
		case a.IsList():
			to.Set(reflect.MakeSlice(a.Type, len(texts), len(texts)))
			for i, text := range texts {
				err = errors.Join(err, setText(to.Index(i), text))
			}
		case len(texts) != 1:
			err = errors.New("give one value")
		default:
			err = setText(to, texts[0])
		}
		if err != nil {
			mistakes = append(mistakes, Mistake{a.Name, strings.ReplaceAll(err.Error(), "\n", "; ")})
		}
	}
	return mistakes
}

// setText sets a value to what a text says.
func setText(to reflect.Value, text string) error {
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return errors.New("it has bytes that are not text")
	}
	if own, reads := to.Addr().Interface().(encoding.TextUnmarshaler); reads {
		return own.UnmarshalText([]byte(text))
	}
	if to.Kind() != reflect.Bool {
		to.SetString(text)
		return nil
	}
	is, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	to.SetBool(is)
	return nil
}

var operatorToken = regexp.MustCompile(`pto_[0-9A-Za-z]{8}`)

// HasToken reports whether a text has the token of a key or of an operator.
func HasToken(text string) bool { return apikey.IsIn([]byte(text)) || operatorToken.MatchString(text) }
