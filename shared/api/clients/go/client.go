// Package petgate calls the pet adoption API, and waits as the API asks.
//
// types.gen.go is generated from the OpenAPI document; the rest is written by hand. The package
// needs the standard library only.
package petgate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:generate go tool oapi-codegen -config oapi-codegen.yaml -o types.gen.go ../../openapi.yaml

// Client calls the API with one key. Set its fields before the first call. It is safe for
// concurrent use; do not copy it.
//
// A call is repeated after 429, 502, 503, 504, after 409 request_in_progress, and if the connection
// breaks. Before each repetition it waits for Retry-After plus a random time, which grows with
// every repetition. After a 429, all calls of the client but GetQuota wait until that Retry-After
// has passed: requests that do not wait can lead to a ban of the key.
//
// A call returns early, with the last error, if its context would end during the wait, or if the
// wait is longer than WaitMax. An error of the API is an *APIError. So is a redirect, unless HTTP
// has a CheckRedirect.
type Client struct {
	URL   string // scheme and host of the gateway, such as https://pets.example
	Token string // the API key

	HTTP        *http.Client  // nil: a client that gives up a request after 30 s
	AttemptsMax int           // requests of one call; 0: 8
	WaitMax     time.Duration // the longest wait before one request; 0: 2 minutes

	mu      sync.Mutex
	refused *APIError // the 429 whose Retry-After ends last
	until   time.Time // when that is
}

// The gateway gives its upstream 10 s, so this ends only requests that hang.
var defaultHTTP = &http.Client{Timeout: 30 * time.Second}

// ListPets returns the pets in the order of their ids. It requests the next page (Link: rel="next",
// RFC 8288) when the loop has consumed the last one. Limit is the size of a page: by default 100,
// the largest, because each page costs a request of the quota. After an error the loop ends. params
// may be nil.
func (c *Client) ListPets(ctx context.Context, params *ListPetsParams) iter.Seq2[Pet, error] {
	params = cmp.Or(params, &ListPetsParams{})
	query := url.Values{"limit": {"100"}}
	set(query, "limit", params.Limit)
	set(query, "status", params.Status)
	set(query, "after", params.After)
	first := c.address("/v1/pets") + "?" + query.Encode()
	return func(yield func(Pet, error) bool) {
		for target := first; target != ""; {
			var page []Pet
			header, err := c.do(ctx, call{method: http.MethodGet, target: target}, &page)
			if err == nil {
				target, err = nextPage(target, header)
			}
			for _, pet := range page {
				if !yield(pet, nil) {
					return
				}
			}
			if err != nil {
				yield(Pet{}, err)
				return
			}
		}
	}
}

// CreatePet stores a pet once, even if it has to send the request several times. All these requests
// have one Idempotency-Key: that of params, or a random one if params or its key is nil.
//
// After an error, the pet may be stored, whatever the code of the error says: the code is that of
// the last request. Another call with the same key and pet stores it, unless it is stored already,
// and returns it.
func (c *Client) CreatePet(ctx context.Context, pet NewPet, params *CreatePetParams) (Pet, error) {
	key := `"` + rand.Text() + `"`
	if params != nil && params.IdempotencyKey != nil {
		key = *params.IdempotencyKey
	}
	body, err := json.Marshal(pet)
	if err != nil {
		return Pet{}, fmt.Errorf("petgate: createPet: %w", err)
	}
	var stored Pet
	_, err = c.do(ctx, call{method: http.MethodPost, target: c.address("/v1/pets"), key: key, body: body}, &stored)
	return stored, err
}

// GetPet returns the pet with an id.
//
// Deprecated: the API removes this operation on 5 December 2030. Use ListPets.
func (c *Client) GetPet(ctx context.Context, id int64) (Pet, error) {
	var pet Pet
	_, err := c.do(ctx, call{method: http.MethodGet, target: c.address("/v1/pets/" + strconv.FormatInt(id, 10))}, &pet)
	return pet, err
}

// GetQuota returns how much of the quota is left. It costs no quota, and does not wait for the
// Retry-After of other calls: the API answers it also while the quota is used up and while the key
// is banned.
func (c *Client) GetQuota(ctx context.Context) (Quota, error) {
	var quota Quota
	_, err := c.do(ctx, call{method: http.MethodGet, target: c.address("/v1/quota"), free: true}, &quota)
	return quota, err
}

// GetUsage returns what the account has used, beginning with the hour or day of params.Since. The
// key needs the scope usage:read. A nil params means the last 7 days, by day.
func (c *Client) GetUsage(ctx context.Context, params *GetUsageParams) (Usage, error) {
	params = cmp.Or(params, &GetUsageParams{})
	query := url.Values{}
	set(query, "by", params.By)
	set(query, "since", params.Since)
	var usage Usage
	_, err := c.do(ctx, call{method: http.MethodGet, target: c.address("/v1/usage") + "?" + query.Encode()}, &usage)
	return usage, err
}

// address returns the URL of a path. URL may end in a slash.
func (c *Client) address(path string) string { return strings.TrimRight(c.URL, "/") + path }

// set sets a parameter, unless it is nil.
func set[T any](query url.Values, name string, value *T) {
	if value != nil {
		query.Set(name, fmt.Sprint(*value))
	}
}

var nextLink = regexp.MustCompile(`<([^>]*)>\s*;[^<]*\brel="?next\b`)

// nextPage returns the address of the next page, or "" after the last page. The key is sent to no
// other host.
func nextPage(page string, header http.Header) (string, error) {
	link := nextLink.FindStringSubmatch(strings.Join(header.Values("Link"), ", "))
	if link == nil {
		return "", nil
	}
	base, err := url.Parse(page)
	if err != nil {
		return "", fmt.Errorf("petgate: %w", err)
	}
	next, err := base.Parse(link[1])
	if err != nil {
		return "", fmt.Errorf("petgate: the link to the next page: %w", err)
	}
	if next.Scheme != base.Scheme || next.Host != base.Host {
		return "", fmt.Errorf("petgate: the next page is on another host: %s", next)
	}
	return next.String(), nil
}

// call is one call of the API. All operations are safe to repeat: GET, and POST with an
// Idempotency-Key.
type call struct {
	method, target string
	key            string // Idempotency-Key
	body           []byte // nil: none
	free           bool   // the quota and bans do not apply
}

// do sends a request until it succeeds or must not be repeated, and decodes the response into
// result. The error is an *APIError, or comes from the connection or from ctx.
func (c *Client) do(ctx context.Context, r call, result any) (http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, r.method, r.target, bytes.NewReader(r.body))
	switch {
	case err != nil:
		return nil, fmt.Errorf("petgate: %w", err)
	case request.URL.Host == "":
		return nil, fmt.Errorf("petgate: URL %q has no host", c.URL)
	case strings.ContainsAny(c.Token, "\r\n"): // such as the end of a file
		return nil, errors.New("petgate: Token has a line break")
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	request.Header.Set("Accept", "application/json")
	if r.body != nil {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", r.key)
	}
	for attempt := 1; ; attempt++ {
		if !r.free {
			if err := c.awaitTurn(ctx); err != nil {
				return nil, err
			}
		}
		again := request.Clone(ctx)
		again.Body, _ = request.GetBody() // it never fails for bytes
		header, text, err := c.send(again)
		if err == nil {
			if err = json.Unmarshal(text, result); err != nil {
				err = fmt.Errorf("petgate: %s %s: %w", r.method, r.target, err)
			}
			return header, err
		}
		refusal, _ := errors.AsType[*APIError](err)
		if refusal != nil && !r.free {
			c.note(refusal)
		}
		if attempt >= cmp.Or(c.AttemptsMax, 8) || !repeatable(err, refusal) || ctx.Err() != nil {
			return nil, err
		}
		pause := backoff(attempt)
		if refusal != nil {
			pause += refusal.RetryAfter
		}
		if err := c.wait(ctx, pause, err); err != nil {
			return nil, err
		}
	}
}

// bodyBytesMax limits what is read of one response. A page of 100 pets has less than 150 kB.
const bodyBytesMax = 4 << 20

// send sends a request once, and returns the body of a successful response.
func (c *Client) send(request *http.Request) (http.Header, []byte, error) {
	client := *cmp.Or(c.HTTP, defaultHTTP)
	if client.CheckRedirect == nil {
		// The API has no redirects. If net/http followed one, it would send the key to another
		// port, to a subdomain or without TLS, and a POST as a GET.
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("petgate: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, bodyBytesMax))
	if err != nil {
		return nil, nil, fmt.Errorf("petgate: %s %s: read the response: %w", request.Method, request.URL, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		err = newAPIError(response, text)
	}
	return response.Header, text, err
}
