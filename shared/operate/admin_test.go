package operate_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/testkit/must"
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

// A gateway that hangs delays a refresh by the limit, and the others have all of the limit to answer.
func TestWatchOfAHangingGateway(t *testing.T) {
	before := operate.LiveWithin
	t.Cleanup(func() { operate.LiveWithin = before })
	operate.LiveWithin = 200 * time.Millisecond
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	must.Do(t, err)
	defer mute.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"requests":7}`)) }))
	t.Cleanup(server.Close)
	var w operate.Watch
	all := w.Ask(t.Context(), []keystore.Gateway{{AdminAddress: mute.Addr().String()}, {AdminAddress: server.Listener.Addr().String()}}, 1)
	if !errors.Is(all[0].Err, context.DeadlineExceeded) || all[1].Err != nil || all[1].Requests != 7 {
		t.Errorf("%+v", all)
	}
}
