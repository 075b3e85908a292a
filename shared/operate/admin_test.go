package operate_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// An address that claims to be a gateway cannot make keyadmin ask another one.
func TestAskAdminFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("the redirect is followed")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	t.Cleanup(server.Close)
	for _, path := range []string{"/about", operate.ReadyPath} {
		if err := operate.AskAdmin(t.Context(), keystore.Gateway{AdminAddress: server.Listener.Addr().String()}, path, &struct{}{}); err == nil {
			t.Errorf("%s: a redirect is an answer", path)
		}
	}
}
