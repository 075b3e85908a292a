package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

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

// completeCommand is not in the help: the scripts call it with the words after keyadmin, of which
// the last one is to be completed. It prints a candidate on each line, followed by a tab and a
// description. Where there is none, the shell completes the names of files.
const completeCommand = "__complete"

// completionScripts ask keyadmin at each Tab.
var completionScripts = map[string]string{
	"bash": `_keyadmin() {
  local candidate
  local -a words=("${COMP_WORDS[@]:1:COMP_CWORD}")
  COMPREPLY=()
  while IFS=$'\t' read -r candidate _; do
    COMPREPLY+=("$candidate")
  done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}
complete -o default -F _keyadmin keyadmin
`,
	"zsh": `#compdef keyadmin
_keyadmin() {
  local line
  local -a candidates
  for line in "${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -n $line ]] && candidates+=("${line/$'\t'/:}")
  done
  if (( $#candidates )); then
    _describe -V keyadmin candidates
  else
    _files
  fi
}
if [[ ${funcstack[1]} == _keyadmin ]]; then # zsh has loaded this file from fpath, for the first Tab
  _keyadmin "$@"
else
  compdef _keyadmin keyadmin
fi
`,
	"fish": `function __keyadmin_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c keyadmin -a '(__keyadmin_complete)'
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
		if !strings.HasPrefix(c.word, last) {
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
	awaits := false // the next word is the value of a flag
	for _, word := range words {
		flag, child := flagOf(node, word), childOf(node, word)
		switch {
		case awaits:
			awaits = false
		case flag != nil:
			awaits = !flag.IsBool()
		case child != nil:
			node = child
		}
	}
	var all []candidate
	switch {
	case awaits:
	case strings.HasPrefix(last, "-"):
		for _, flag := range flagsOf(node) {
			all = append(all, candidate{"--" + flag.Name, flag.Help})
		}
		slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	default:
		for _, child := range node.Children {
			all = append(all, candidate{child.Name, child.Help})
		}
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
