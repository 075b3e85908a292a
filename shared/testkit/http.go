package testkit

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"petgate/shared/testkit/must"
)

// Send sends a request and returns the response, whose body it has read. An empty token is none.
// Header fields follow in pairs.
func Send(
	t testing.TB, client *http.Client, method, url, token, body string, fields ...string,
) (*http.Response, string) {
	t.Helper()
	request := must.Get[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(fields); i += 2 {
		if request.Header.Add(fields[i], fields[i+1]); fields[i] == "Host" {
			request.Host = fields[i+1]
		}
	}
	response := must.Get[*http.Response](t)(client.Do(request))
	defer response.Body.Close()
	return response, string(must.Get[[]byte](t)(io.ReadAll(response.Body)))
}
