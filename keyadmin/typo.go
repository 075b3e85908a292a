package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"petgate/shared/operate"
)

// needsCommand replaces kong's list of commands, which it cuts off after five.
const needsCommand = "a command is missing"

// The texts of kong about an argument that it cannot place.
var (
	unexpected = regexp.MustCompile(`^unexpected argument (.*?)(?:, did you mean .*)?$`)
	unknown    = regexp.MustCompile(`^unknown flag (--?[^,:= ]+)(?:, did you mean (.*))?$`)
	expected   = regexp.MustCompile(`^expected "<([^>"]+)>.*"$`)
)

// otherWords are the words of other command lines, and what they are called here.
var otherWords = map[string]string{
	"ls": "list", "get": "show", "describe": "show", "info": "show", "new": "create", "rm": "delete", "remove": "delete", "del": "delete",
	"edit": "update", "set": "update", "modify": "update", "change": "update", "unban": "lift", "issue": "create",
	"unsuspend": "resume", "activate": "resume", "block": "suspend", "roll": "rotate",
	"customer": "tenant", "customers": "tenant", "user": "tenant", "users": "tenant", "token": "key", "tokens": "key", "apikey": "key",
	"log": "audit", "events": "audit", "history": "audit", "init": "migrate", "status": "doctor", "check": "doctor", "dump": "export",
	"import": "apply", "quota": "usage",
}

// otherFlags are the same for flags.
var otherFlags = map[string]string{
	"--json": "-o json", "--csv": "-o csv", "--format": "--output", "--force": "--yes", "-f": "--yes", "--per-minute": "--minute",
	"--per-day": "--day", "--rpm": "--minute", "--ttl": "--expires", "--expiry": "--expires", "--cidr": "--allow", "--ip": "--allow",
	"--duration": "--for", "--days": "--since 7d", "--month": "--since 30d", "--from": "--since", "--message": "--tell", "--notice": "--tell",
	"--timeout": "--wait",
}

// flagWays say what to do instead of flags that do not exist.
var flagWays = map[string]string{
	"--database-url": "set $DATABASE_URL, or put the URL into a file for --database-url-file: flags are seen in ps",
	"--request":      "search the access logs of the gateways for this requestId. They say how the request ended",
	"--request-id":   "search the access logs of the gateways for this requestId. They say how the request ended",
}

// otherWays say what to do instead of commands that do not exist.
var otherWays = map[string]string{
	"tenant disable": "use `keyadmin tenant suspend`",
	"tenant enable":  "use `keyadmin tenant resume`",
	"tenant update":  "use `keyadmin tenant set-plan` or `keyadmin tenant set-quota`",
	"plan show":      "`keyadmin plan list` shows all",
	"plan rename":    "a plan keeps its name, because scripts and the audit log use it",
	"key delete":     "keys are not deleted, because their history must stay. `keyadmin key revoke` ends one, `keyadmin key disable` refuses it for a while",
	"key rename":     "use `keyadmin key update KEY --name NAME`",
	"key ban":        "use `keyadmin ban add`",
	"ban delete":     "use `keyadmin ban lift`",
	"ban create":     "use `keyadmin ban add`",
	"ban show":       "`keyadmin ban list` shows all",
	"gateway show":   "`keyadmin gateway list` shows all",
	"gateway delete": "use `keyadmin gateway forget`",
	"usage list":     "use `keyadmin usage show TENANT`",
}

// explainArgument says what is wrong with an argument at a command, and what to use instead.
func explainArgument(at *kong.Node, problem string) string {
	if strings.HasPrefix(problem, "expected one of ") {
		return needsCommand
	}
	if match := expected.FindStringSubmatch(problem); match != nil {
		return "the argument <" + match[1] + "> is missing"
	}
	if match := unknown.FindStringSubmatch(problem); match != nil {
		return "there is no flag " + match[1] + suggestedFlag(at, match[1], match[2])
	}
	match := unexpected.FindStringSubmatch(problem)
	if match == nil {
		return problem
	}
	word := match[1]
	if len(at.Children) == 0 {
		return fmt.Sprintf("the argument %q is one too many", word)
	}
	return noCommand(at, word)
}

// noCommand says that a command does not exist, and which one may be meant.
func noCommand(at *kong.Node, word string) string {
	noun := strings.TrimPrefix(strings.TrimPrefix(at.FullPath(), "keyadmin"), " ")
	called := strings.TrimSpace(noun + " " + word)
	text := fmt.Sprintf("there is no command `keyadmin %s`", called)
	meant := otherWords[word]
	for _, name := range []string{word, meant} {
		if way := otherWays[strings.TrimSpace(noun+" "+name)]; way != "" {
			return text + ": " + way
		}
	}
	var names []string
	for _, child := range at.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	if slices.Contains(names, meant) {
		return text + fmt.Sprintf(": did you mean `keyadmin %s`?", strings.TrimSpace(noun+" "+meant))
	}
	if noun == "" {
		names = append(names, "help")
		for _, verb := range []string{word, meant} {
			if paths := commandsOf(at, verb); len(paths) > 0 {
				return text + ": did you mean " + strings.Join(paths, " or ") + "?"
			}
		}
	}
	near := didYouMean(word, names)
	if near == "" && slices.Contains(names, "show") { // it may be what to show
		return text + fmt.Sprintf(": did you mean `keyadmin %s show %s`?", noun, operate.ShellWord(word))
	}
	return text + near
}

// commandsOf finds the commands with a verb: `keyadmin key revoke` for revoke.
func commandsOf(root *kong.Node, verb string) []string {
	var paths []string
	for _, noun := range root.Children {
		for _, child := range noun.Children {
			if child.Name == verb {
				paths = append(paths, "`keyadmin "+noun.Name+" "+verb+"`")
			}
		}
	}
	return paths
}

// suggestedFlag suggests a flag of the command. near is what kong found.
func suggestedFlag(at *kong.Node, flag, near string) string {
	if way := flagWays[flag]; way != "" {
		return ": " + way
	}
	for _, argument := range at.Positional {
		if argument.Name == strings.TrimLeft(flag, "-") {
			return fmt.Sprintf(": give the %[1]s without a flag, `keyadmin%[2]s <%[1]s>`", argument.Name, strings.TrimPrefix(at.FullPath(), "keyadmin"))
		}
	}
	meant := otherFlags[flag]
	name, _, _ := strings.Cut(strings.TrimLeft(meant, "-"), " ")
	for _, group := range at.AllFlags(true) {
		for _, f := range group {
			if meant != "" && (f.Name == name || string(f.Short) == name) {
				return fmt.Sprintf(": did you mean %s?", meant)
			}
		}
	}
	if near == "" {
		return ""
	}
	near = strings.TrimSuffix(strings.TrimPrefix(near, "one of "), "?")
	return ": did you mean " + strings.ReplaceAll(strings.ReplaceAll(near, `"`, ""), ", ", " or ") + "?"
}
