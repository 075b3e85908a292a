package operate

import (
	"cmp"
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
	Title      string // of its field in a form
}

// ArgumentsOf lists the arguments of a type, also those of embedded structs.
func ArgumentsOf(t reflect.Type) (all []Argument) {
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); name != "" {
			_, isRequired := f.Tag.Lookup("required")
			title := cmp.Or(f.Tag.Get("title"), strings.ToUpper(name[:1])+name[1:])
			all = append(all, Argument{f, name, isRequired, f.Tag.Get("default"), title})
		}
	}
	return all
}

// IsList reports whether the argument may have more than one value.
func (a Argument) IsList() bool { return a.Type.Kind() == reflect.Slice }

// ReadArguments sets arguments to what is given as text by their names, or to their defaults.
func ReadArguments(into reflect.Value, given map[string][]string) (mistakes []Mistake) {
	for _, a := range ArgumentsOf(into.Type()) {
		texts, isGiven := given[a.Name]
		if !isGiven && a.Default != "" {
			texts, isGiven = []string{a.Default}, true
		}
		var wrong Text
		switch to := into.FieldByIndex(a.Index); {
		case !isGiven && a.IsRequired:
			wrong = Text{"it is missing: " + a.Tag.Get("help")}
		case !isGiven:
		case a.IsList():
			wrong = setTexts(to, texts)
		case len(texts) != 1:
			wrong = Text{"give one value"}
		default:
			if err := setText(to, texts[0]); err != nil {
				wrong = textOf(err)
			}
		}
		if wrong != nil {
			mistakes = append(mistakes, Mistake{a.Name, wrong})
		}
	}
	return mistakes
}

// setTexts sets a list to what texts say, and returns what is wrong with them.
func setTexts(to reflect.Value, texts []string) (wrong Text) {
	to.Set(reflect.MakeSlice(to.Type(), len(texts), len(texts)))
	for i, text := range texts {
		err := setText(to.Index(i), text)
		if err == nil {
			continue
		}
		if wrong != nil {
			wrong = append(wrong, "; ")
		}
		wrong = append(wrong, textOf(err)...)
	}
	return wrong
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
