package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"petgate/shared/operate"
)

// needsCommand replaces kong's list of commands, which it cuts off after five.
const needsCommand = "a command is missing"

// The texts of kong about an argument that it cannot place.
var (
	unexpected = regexp.MustCompile(`^unexpected argument (.*?)(?:, did you mean .*)?$`)
	unknown    = regexp.MustCompile(`^unknown flag (--?[^,:= ]+)(?:, did you mean (?:one of )?([^?]*))?`)
	expected   = regexp.MustCompile(`^expected "<([^>"]+)>.*"$`)
)

// otherWays say what to do instead of commands and flags that are left out on purpose.
var otherWays = map[string]string{
	"plan rename":    "a plan keeps its name, because scripts and the audit log use it",
	"key delete":     "keys are not deleted, because their history must stay. `keyadmin key revoke` ends one, `keyadmin key disable` refuses it for a while",
	"--database-url": "set $DATABASE_URL, or put the URL into a file for --database-url-file: flags are seen in ps",
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
		text := "there is no flag " + match[1]
		if way := otherWays[match[1]]; way != "" {
			return text + ": " + way
		} else if match[2] != "" {
			return text + ": did you mean " + strings.NewReplacer(`"`, "", ", ", " or ").Replace(match[2]) + "?"
		}
		for i, flag := range at.Flags {
			text += operate.Either(i == 0, ": use ", ", ") + "--" + flag.Name
		}
		return text
	}
	match := unexpected.FindStringSubmatch(problem)
	if match == nil {
		return problem
	}
	if len(at.Children) == 0 {
		return fmt.Sprintf("the argument %q is one too many", match[1])
	}
	noun := strings.TrimPrefix(strings.TrimPrefix(at.FullPath(), "keyadmin"), " ")
	called := strings.TrimSpace(noun + " " + match[1])
	text := fmt.Sprintf("there is no command `keyadmin %s`", called)
	if way := otherWays[called]; way != "" {
		return text + ": " + way
	}
	var names []string
	for _, child := range at.Children {
		names = append(names, child.Name)
	}
	if near := didYouMean(match[1], names); near != "" {
		return text + near
	}
	return text + ": use " + strings.Join(names, ", ")
}
