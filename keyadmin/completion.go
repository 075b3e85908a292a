package main

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"petgate/shared/keystore"
	"petgate/shared/metering"
	"petgate/shared/operate"
	"petgate/shared/service"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCommand) Run(a *app) error {
	if _, err := fmt.Fprint(a.Out, completionScripts[c.Shell]); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// completeCommand is not in the help: the scripts call it with the words after keyadmin, of which the last one is to be completed. It
// prints a candidate on each line, followed by a tab and a description, or only completeFiles.
const completeCommand = "__complete"

// completeFiles is printed where a file name is expected: the shell completes it.
const completeFiles = ":files"

// completionScripts ask keyadmin at each Tab. The word is taken from the line, because bash breaks words at colons.
var completionScripts = map[string]string{
	"bash": `_keyadmin() {
  local line="${COMP_LINE:0:COMP_POINT}" current candidate
  local -a words
  read -ra words <<<"$line"
  [[ $line == *" " ]] && words+=("")
  current="${words[${#words[@]} - 1]}"
  COMPREPLY=()
  while IFS=$'\t' read -r candidate _; do
    if [[ $candidate == :files ]]; then
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
    fi
    COMPREPLY+=("${candidate#"${current%"${current##*[:=]}"}"}")
  done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _keyadmin keyadmin
`,
	"zsh": `#compdef keyadmin
_keyadmin() {
  local line word
  local -a candidates
  for line in "${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    if [[ $line == :files ]]; then
      _files
      return
    fi
    word=${line%%$'\t'*}
    word=${word//:/\\:}
    [[ $line == *$'\t'* ]] && word+=:${line#*$'\t'}
    candidates+=("$word")
  done
  _describe -V keyadmin candidates
}
if [[ ${funcstack[1]} == _keyadmin ]]; then # zsh has loaded this file from fpath, for the first Tab
  _keyadmin "$@"
else
  compdef _keyadmin keyadmin
fi
`,
	"fish": `function __keyadmin_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l candidates ($words[1] __complete $words[2..-1] 2>/dev/null)
    if test "$candidates" = ":files"
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $candidates
    end
end
complete -c keyadmin -f -a '(__keyadmin_complete)'
`,
}

// candidate is a word that may stand at the cursor.
type candidate struct{ word, about string }

// complete prints the candidates for the last word.
func (a *app) complete(words []string) error {
	parser, err := kong.New(&cli{}, kong.Name("keyadmin"), kong.Vars{"version": "-"})
	if err != nil || len(words) == 0 {
		return err
	}
	last := words[len(words)-1]
	for _, c := range candidates(parser.Model.Node, words[:len(words)-1], last) {
		if !strings.HasPrefix(c.word, last) && c.word != completeFiles {
			continue
		}
		line := operate.Printable(c.word)
		if c.about != "" {
			line += "\t" + operate.Printable(c.about)
		}
		if _, err := fmt.Fprintln(a.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns what may follow the words, of which the person has begun to type the last one.
func candidates(node *kong.Node, words []string, last string) []candidate {
	argument := 0
	var awaits *kong.Flag // the flag whose value is the next word
	for _, word := range words {
		flag, child := flagOf(node, word), childOf(node, word)
		switch {
		case awaits != nil:
			awaits = nil
		case flag != nil && !flag.IsBool():
			awaits = flag
		case strings.HasPrefix(word, "-"):
		case child != nil:
			node = child
		default:
			argument++
		}
	}
	var all []candidate
	switch {
	case awaits != nil:
		return values(awaits.Value)
	case strings.HasPrefix(last, "-"):
		for _, flag := range flagsOf(node) {
			all = append(all, candidate{"--" + flag.Name, flag.Help})
		}
		slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	case len(node.Children) > 0:
		for _, child := range node.Children {
			all = append(all, candidate{child.Name, child.Help})
		}
	case argument < len(node.Positional):
		return values(node.Positional[argument])
	}
	return all
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// flagsOf returns the flags that may be given at a command.
func flagsOf(node *kong.Node) []*kong.Flag {
	return slices.DeleteFunc(slices.Concat(node.AllFlags(true)...), func(f *kong.Flag) bool {
		return f.Target.Type() == reflect.TypeFor[service.Secret]()
	})
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, f := range flagsOf(node) {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

// values returns what the value of a flag or of an argument can be, by its name or by its tag complete.
func values(v *kong.Value) []candidate {
	return known[cmp.Or(v.Tag.Get("complete"), v.Name)]
}

// known are the kinds of values that do not depend on the database. Its names are not completed: a shell rarely has its URL.
var known = map[string][]candidate{
	"output": list("table", "json", "csv"), "shell": list("bash", "zsh", "fish"), "by": list(operate.Groupings...),
	"kind": list(keystore.EventKinds...), "role": list(keystore.Roles...), "format": list(metering.Formats...),
	"file": list(completeFiles), "database-url-file": list(completeFiles), "token-file": list(completeFiles), "key-file": list(completeFiles),
}

func list[T ~string](words ...T) []candidate {
	all := make([]candidate, len(words))
	for i, word := range words {
		all[i].word = string(word)
	}
	return all
}
