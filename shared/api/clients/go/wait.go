package petgate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// The random part of a wait is at most backoffMin, doubled for each repetition, up to backoffMax.
const (
	backoffMin = time.Second
	backoffMax = time.Minute
)

// backoff returns a random time before the repetition of attempt 1, 2, … ("full jitter": many
// clients do not come back at the same instant).
func backoff(attempt int) time.Duration {
	return rand.N(min(backoffMax, backoffMin<<min(attempt-1, 6)))
}

// repeatable reports whether the same request can succeed later. Other errors than refusals are the
// connection's.
func repeatable(err error, refusal *APIError) bool {
	if refusal == nil {
		_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
		return !untrusted
	}
	switch refusal.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return refusal.Code == ErrorCodeRequestInProgress
}

// note makes later calls wait after a 429, except free ones.
func (c *Client) note(refusal *APIError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := refusal.at.Add(refusal.RetryAfter)
	if refusal.Status == http.StatusTooManyRequests && until.After(c.until) {
		c.refused, c.until = refusal, until
	}
}

// awaitTurn waits until Retry-After of the last 429 has passed, also if another call got it.
func (c *Client) awaitTurn(ctx context.Context) error {
	for {
		c.mu.Lock()
		refused, left := c.refused, time.Until(c.until)
		c.mu.Unlock()
		if left <= 0 {
			return nil
		}
		if err := c.wait(ctx, left+backoff(1), refused); err != nil {
			return err
		}
	}
}

// wait waits for d. It returns cause at once if d is too long, or if ctx would end first.
func (c *Client) wait(ctx context.Context, d time.Duration, cause error) error {
	longest := cmp.Or(c.WaitMax, 2*time.Minute)
	deadline, limited := ctx.Deadline()
	if d > longest || limited && d > time.Until(deadline) {
		return cause
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w while waiting after: %w", context.Cause(ctx), cause)
	}
}
