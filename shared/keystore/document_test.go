package keystore_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dustin/go-humanize"

	"petgate/shared/keystore"
	"petgate/shared/testkit/must"
)

// docs/api.md lists the plans of a new database.
func TestDocsListThePlans(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	must.Do(t, err)
	eachStore(t, func(t *testing.T, s *keystore.Store, _ *clock) {
		for _, p := range must.Get[[]keystore.Plan](t)(s.Plans(t.Context())) {
			row := "| " + p.Name + " | as agreed | as agreed |"
			if p.Limits.IsSet() {
				row = "| " + p.Name + " | " + humanize.Comma(p.Limits.Minute) + " | " + humanize.Comma(p.Limits.Day) + " |"
			}
			if !strings.Contains(string(text), row+"\n") {
				t.Errorf("docs/api.md does not have %q", row)
			}
		}
	})
}
