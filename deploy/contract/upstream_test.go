package contract_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"petgate/shared/core/apikey"
	"petgate/shared/testkit/must"
)

// faultyUpstream serves what the query parameter fault names, and one pet otherwise.
func faultyUpstream(t *testing.T) string {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Query().Get("fault") {
		case "500":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"code":"internal","message":"The test wants it so.","status":500}`)
		case "401":
			w.WriteHeader(http.StatusUnauthorized)
		case "503":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"database_unavailable","message":"The test wants it so.","status":503}`)
		case "409":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":"request_in_progress","message":"The test wants it so.","status":409}`)
		case "garbage":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n\r\n")
			_ = conn.Close()
		case "hang":
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		default:
			_, _ = io.WriteString(w, `[{"id":1,"name":"Rex","categoryId":1,"status":"available"}]`)
		}
	}))
	t.Cleanup(func() { close(ended); server.Close() })
	return server.URL
}

func unknownToken(t testing.TB) string {
	t.Helper()
	return must.Get[string](t)(apikey.Draw(apikey.Beginning(apikey.DefaultPrefix, apikey.Live), rand.Reader))
}
