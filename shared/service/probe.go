package service

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// probeWithin bounds a probe. It is longer than any check that /readyz waits for.
const probeWithin = 5 * time.Second

// probe asks /readyz of the program that has the same settings, and writes the response in words.
// It returns the exit code: 0 if the program is ready, 1 if not. So an image without a shell can
// have a health check.
func probe(address string, isTLS bool, name string, stdout, stderr io.Writer) int {
	problems, ready, err := Readiness(address, isTLS)
	if err != nil {
		fmt.Fprintf(stderr, "%s: not ready: %v\n", name, err)
		return 1
	}
	var text strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&text, "\n  %s: %s", p.Name, p.Detail)
	}
	if !ready {
		fmt.Fprintf(stderr, "%s: not ready%s\n", name, &text)
		return 1
	}
	fmt.Fprintf(stdout, "%s: ready%s\n", name, &text)
	return 0
}

// Readiness asks /readyz of the admin port at address: host:port or unix:/path. It takes at most
// five seconds. It does not verify the certificate, whose names are those for other hosts: it sends
// nothing secret, and only reads whether the program is ready.
func Readiness(address string, isTLS bool) (problems []Problem, ready bool, err error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, unixScheme); ok {
		network, address = "unix", path
	}
	client := http.Client{
		Timeout: probeWithin,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true,
		},
	}
	scheme := "http"
	if isTLS {
		scheme = "https"
	}
	response, err := client.Get(scheme + "://localhost/readyz")
	if err != nil {
		return nil, false, err
	}
	defer response.Body.Close()
	var answer readyAnswer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, false, fmt.Errorf("the admin port %s answers %s, and not as this program does: %w", address,
			response.Status, err)
	}
	return answer.Problems, response.StatusCode == http.StatusOK, nil
}
