package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"petgate/shared/testkit"
)

// block is a fenced block of a page.
type block struct{ language, text, marker string }

var (
	fenced  = regexp.MustCompile("(?ms)^(?: *<!-- ([^\n]*) -->\n+)?( *)```(\\w+)\n(.*?)^ *```$")
	runBy   = regexp.MustCompile(`^run by (Test\w+)$`)
	loose   = regexp.MustCompile(`(?m)^\n {4,}(\S+ [^\n]*)`)
	program = regexp.MustCompile(`^(curl|docker|export|gateway|go|keyadmin|make|mkdir|petsvc|psql|redis-cli|systemctl) `)
)

// commands returns the blocks of a page that a reader executes or gives to a program: all with a language other than that of answers.
func commands(text string) (found []block) {
	for _, match := range fenced.FindAllStringSubmatch(text, -1) {
		if match[3] != "json" {
			found = append(found, block{match[3], match[4], match[1]})
		}
	}
	return found
}

// isRun reports whether TestCommands executes the block.
func (b block) isRun() bool {
	return b.marker == "" && slices.Contains([]string{"sh", "bash"}, b.language)
}

// Every block of commands is executed by TestCommands, or a comment above it names the test that uses it, or says why none does.
func TestEveryBlockIsRunOrSaysWhyNot(t *testing.T) {
	all, defined, checked := pages(t), definedTests(t), 0
	for path, text := range all {
		for _, b := range commands(text) {
			checked++
			reason, isNot := strings.CutPrefix(b.marker, "not run: ")
			switch by := runBy.FindStringSubmatch(b.marker); {
			case by != nil:
				if !defined[by[1]] {
					t.Errorf("%s: there is no test %s", path, by[1])
				}
			case isNot && len(strings.Fields(reason)) >= 3, b.isRun():
			default:
				t.Errorf("%s: mark this block with <!-- run by TestName --> or <!-- not run: why -->, not with %q:\n%s", path, b.marker, b.text)
			}
		}
		for _, match := range loose.FindAllStringSubmatch(text, -1) {
			if program.MatchString(match[1]) {
				t.Errorf("%s: this command is not in a fenced block: %s", path, match[1])
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d blocks found", checked)
	}
}

var (
	inline = regexp.MustCompile("`(?:bin/)?keyadmin ([^`]+)`")
	flags  = regexp.MustCompile(`--([a-z][a-z-]*)`)
)

// Every command of keyadmin in the text of a page exists, with its flags.
func TestKeyadminHasTheCommandsOfThePages(t *testing.T) {
	keyadmin, helps := testkit.Build(t, "petgate/keyadmin"), map[string]string{}
	for path, text := range pages(t) {
		for _, match := range inline.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(match[1])
			end := slices.IndexFunc(words, func(word string) bool {
				return word != strings.ToLower(word) || !regexp.MustCompile(`^[a-z]`).MatchString(word)
			})
			if end < 0 {
				end = len(words)
			}
			command := strings.Join(words[:min(end, 2)], " ")
			if _, known := helps[command]; !known {
				p := testkit.Start(t, keyadmin, nil, append(strings.Fields(command), "--help")...)
				p.ExitCode(t)
				helps[command] = p.Stdout.String()
			}
			if helps[command] == "" {
				t.Errorf("%s: there is no command %s", path, match[0])
			}
			for _, flag := range flags.FindAllStringSubmatch(match[1], -1) {
				if !regexp.MustCompile(`--(\[no-\])?` + flag[1] + `\b`).MatchString(helps[command]) {
					t.Errorf("%s: %s has no flag --%s", path, match[0], flag[1])
				}
			}
		}
	}
	if len(helps) < 15 {
		t.Errorf("only %d commands found", len(helps))
	}
}
