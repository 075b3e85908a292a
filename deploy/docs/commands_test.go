package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
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
