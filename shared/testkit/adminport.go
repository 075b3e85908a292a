package testkit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// AdminPort stands for the admin port of a gateway until the end of the test, and returns its
// address. It has an answer for each path, as JSON; a path that ends with / stands for all paths
// below. An answer that is an http.HandlerFunc is called. Other paths get 404.
func AdminPort(t testing.TB, answers map[string]any) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, answer := range answers {
		handler, isHandler := answer.(http.HandlerFunc)
		if !isHandler {
			handler = func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(answer) }
		}
		mux.Handle(path, handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
