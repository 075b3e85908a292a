package verbs

import (
	"reflect"
	"testing"

	"petgate/shared/operate"
)

// Each argument of each verb is in a case.
func TestCasesHaveAllArguments(t *testing.T) {
	for _, c := range cases {
		for _, a := range operate.ArgumentsOf(reflect.TypeOf(c.verb)) {
			isGiven := false
			for _, of := range casesOf(c.verb) {
				isGiven = isGiven || of.given[a.Name] != nil
			}
			if !isGiven {
				t.Errorf("no case of %T gives %s", c.verb, a.Name)
			}
		}
	}
}
