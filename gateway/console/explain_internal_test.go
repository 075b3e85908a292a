package console

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"petgate/shared/keystore"
)

// A page that asks gateways says whether they or the database gave no answer.
func TestCannotAsk(t *testing.T) {
	s := newStage(t)
	for want, err := range map[string]error{
		"The database cannot be used": keystore.ErrUnavailable,
		"There is no answer":          errors.New("no gateway is registered"),
	} {
		w := httptest.NewRecorder()
		s.console.cannotAsk(w, nil, err)
		if page := w.Body.String(); w.Code != 503 || !strings.Contains(page, want) {
			t.Errorf("%v: %d, want %q in\n%s", err, w.Code, want, page)
		}
	}
}
