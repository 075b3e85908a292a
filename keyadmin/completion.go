package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
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
	if err != nil {
		return err
	}
	if len(words) > 1 && words[0] == "help" {
		words = words[1:]
	}
	for _, c := range a.candidates(parser.Model.Node, words) {
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

func (a *app) candidates(node *kong.Node, words []string) []candidate {
	last, argument := "", 0
	var awaits *kong.Flag // the flag whose value is the next word
	for i, word := range words {
		switch {
		case i == len(words)-1:
			last = word
		case awaits != nil:
			awaits = nil
		case strings.HasPrefix(word, "-"):
			if f := flagOf(node, word); f != nil && !f.IsBool() && !strings.Contains(word, "=") {
				awaits = f
			}
		default:
			if child := childOf(node, word); child != nil {
				node = child
			} else {
				argument++
			}
		}
	}
	name, value, joined := strings.Cut(last, "=")
	switch {
	case awaits != nil:
		return startingWith(last, "", a.values(awaits.Value, words))
	case joined && strings.HasPrefix(last, "--"):
		if f := flagOf(node, name); f != nil {
			return startingWith(value, name+"=", a.values(f.Value, words))
		}
		return nil
	case strings.HasPrefix(last, "-"):
		return startingWith(last, "", flagsOf(node))
	case len(node.Children) > 0:
		return startingWith(last, "", commandsIn(node))
	case argument < len(node.Positional):
		return startingWith(last, "", a.values(node.Positional[argument], words))
	}
	return nil
}

// startingWith returns the candidates that start with a word, each after a prefix.
func startingWith(word, prefix string, all []candidate) []candidate {
	var matching []candidate
	for _, c := range all {
		if strings.HasPrefix(c.word, word) || c.word == completeFiles {
			matching = append(matching, candidate{prefix + c.word, c.about})
		}
	}
	return matching
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func commandsIn(node *kong.Node) []candidate {
	var all []candidate
	for _, child := range node.Children {
		all = append(all, candidate{child.Name, child.Help})
	}
	if node.Parent == nil {
		all = append(all, candidate{"help", "Show how to use a command."})
	}
	return all
}

// eachFlag calls f for the flags that may be given at a command.
func eachFlag(node *kong.Node, f func(*kong.Flag)) {
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			if flag.Target.Type() != reflect.TypeFor[service.Secret]() {
				f(flag)
			}
		}
	}
}

func flagOf(node *kong.Node, word string) (found *kong.Flag) {
	name, _, _ := strings.Cut(word, "=")
	eachFlag(node, func(f *kong.Flag) {
		if name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short) {
			found = f
		}
	})
	return found
}

func flagsOf(node *kong.Node) []candidate {
	var all []candidate
	eachFlag(node, func(f *kong.Flag) { all = append(all, candidate{"--" + f.Name, f.Help}) })
	slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	return all
}

// completeWithin is how long the database has for the names: a person waits at the Tab key. A variable, because tests have to pass on
// a machine that is busy.
var completeWithin = 300 * time.Millisecond

// values returns candidates for the value of a flag or of an argument, by its name or by its tag complete.
func (a *app) values(v *kong.Value, words []string) []candidate {
	kind := cmp.Or(v.Tag.Get("complete"), v.Name)
	if known := fixed[kind]; known != nil {
		return known
	}
	read, known := stored[kind]
	if !known {
		return nil
	}
	found := make(chan []candidate, 1)
	go func() { found <- a.stored(read, words) }()
	select {
	case all := <-found:
		return all
	case <-time.After(completeWithin):
		return nil
	}
}

// fixed are the kinds of values that do not depend on the database.
var fixed = map[string][]candidate{
	"output": list("table", "json", "csv"), "shell": list("bash", "zsh", "fish"), "by": list(operate.Groupings...), "order": list(topOrders...),
	"kind": list(keystore.EventKinds...), "role": list(keystore.Roles...), "format": list(metering.Formats...),
	"file": list(completeFiles), "database-url-file": list(completeFiles), "token-file": list(completeFiles),
}

func list[T ~string](words ...T) []candidate {
	all := make([]candidate, len(words))
	for i, word := range words {
		all[i].word = string(word)
	}
	return all
}

// stored reads candidates from the database that the command line names. If that fails, it returns none: an error message would
// spoil the line that is being typed.
func (a *app) stored(read func(ctx context.Context, a *app, word string) ([]candidate, error), words []string) []candidate {
	other := &app{stdio: a.stdio, cli: &cli{}, env: a.env}
	args := []string{"tenant", "list"}
	for i, word := range words[:len(words)-1] {
		if word == "--database-url-file" {
			args = append(args, word, words[i+1])
		} else if strings.HasPrefix(word, "--database-url-file=") {
			args = append(args, word)
		}
	}
	if _, err := other.parse(args); err != nil {
		return nil
	}
	ctx := context.Background()
	_, err := other.open(ctx)
	if other.db != nil {
		defer other.db.Close()
	}
	if err != nil {
		return nil
	}
	word := words[len(words)-1]
	if _, value, joined := strings.Cut(word, "="); joined && strings.HasPrefix(word, "--") {
		word = value
	}
	all, err := read(ctx, other, word)
	if err != nil {
		return nil
	}
	return all
}

// stored are the kinds of values that the database has.
var stored = map[string]func(ctx context.Context, a *app, word string) ([]candidate, error){
	"scope": func(ctx context.Context, a *app, _ string) ([]candidate, error) {
		known, _, err := a.store.Scopes(ctx)
		return list(append(known.Names(), apikey.UsageRead)...), err
	},
	"tenant": storedTenants,
	"key":    storedKeys,
	"key-or-tenant": func(ctx context.Context, a *app, word string) ([]candidate, error) {
		tenants, err := storedTenants(ctx, a, word)
		if err != nil {
			return nil, err
		}
		keys, err := storedKeys(ctx, a, word)
		return append(tenants, keys...), err
	},
	"plan": func(ctx context.Context, a *app, _ string) ([]candidate, error) {
		plans, err := a.store.Plans(ctx)
		return candidatesFor(plans, func(p keystore.Plan) candidate { return candidate{p.Name, operate.LimitsOrNone(p.Limits)} }), err
	},
	"gateway": func(ctx context.Context, a *app, _ string) ([]candidate, error) {
		gateways, err := a.store.Gateways(ctx)
		return candidatesFor(gateways, func(g keystore.Gateway) candidate { return candidate{g.ID, "seen " + operate.Age(g) + " ago"} }), err
	},
	"lost": func(ctx context.Context, a *app, _ string) ([]candidate, error) {
		refusals, err := a.store.LostRefusals(ctx)
		return candidatesFor(refusals, func(l keystore.LostRefusal) candidate {
			v := operate.ViewLost(l)
			return candidate{cmp.Or(v.Key, v.Tenant), v.Kind}
		}), err
	},
}

func candidatesFor[T any](rows []T, f func(T) candidate) []candidate {
	all := make([]candidate, len(rows))
	for i, row := range rows {
		all[i] = f(row)
	}
	return all
}

// candidatesMax is how many candidates are read. A person who sees so many types another letter.
const candidatesMax = 50

func storedTenants(ctx context.Context, a *app, word string) ([]candidate, error) {
	tenants, err := a.store.TenantsLike(ctx, word, candidatesMax)
	return candidatesFor(tenants, func(t keystore.Tenant) candidate {
		// A shell would need quotes; keyadmin would read a key's ID.
		if operate.ShellWord(t.Name) != t.Name || strings.HasPrefix(t.Name, id.KeyPrefix) {
			return candidate{t.ID.String(), t.Name}
		}
		return candidate{t.Name, "plan " + t.Plan}
	}), err
}

func storedKeys(ctx context.Context, a *app, word string) ([]candidate, error) {
	keys, err := a.store.KeysLike(ctx, word, candidatesMax)
	if err != nil {
		return nil, err
	}
	tenants := make([]id.Tenant, len(keys))
	for i, k := range keys {
		tenants[i] = k.Tenant
	}
	owners, err := a.store.TenantsOf(ctx, tenants)
	var all []candidate
	for _, k := range keys {
		if k.InUse(a.now()) {
			all = append(all, candidate{k.ID.String(), owners[k.Tenant].Name + "/" + k.Name})
		}
	}
	return all, err
}
