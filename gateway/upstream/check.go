package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"

	"petgate/gateway/http1"
)

// Active health: the pool asks each instance at intervals, on a connection of its own. A check that
// fails takes an instance out until a check succeeds, with these exceptions:
//
//   - A check without a valid response in time may mean that the instance is slow. Only three of
//     them in a row take it out. A refused connection or a status other than 2xx takes it out at
//     once.
//   - Checks never take out the last instance. So a single slow instance, or a wrong path, stops no
//     request.
//
// A check that succeeds brings back only an instance that a check took out. An ejection by requests
// lasts its time: checks may succeed where requests fail.

// checkEvery is the time between two checks of an instance, ± 10 %.
const checkEvery = time.Second

// Check says how instances are checked.
type Check struct {
	Path    string        // the target of a GET; empty: instances are not checked
	Timeout time.Duration // of a check, including dialing
	Secret  string        // sent as X-Gateway-Secret; empty: not sent
}

// CheckPath returns an error if the path of a check is invalid.
func CheckPath(path string) error {
	isOutside := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }
	if !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, isOutside) {
		return errors.New("begin it with / and write other characters than visible ASCII as %XX, for example /readyz")
	}
	return nil
}

// request returns the request of a check.
func (c *Check) request(host string) string {
	request := "GET " + c.Path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: petgate-check\r\nConnection: close\r\n"
	if c.Secret != "" {
		request += "X-Gateway-Secret: " + c.Secret + "\r\n"
	}
	return request + "\r\n"
}

// standing is what the checks of an instance say about it.
type standing struct {
	missed int       // checks without a valid response, in a row
	cause  error     // why the checks fail; nil: they do not, or not often enough
	since  time.Time // of cause
}

// watch checks the instance until ctx ends.
func (h *host) watch(ctx context.Context, probe func(context.Context) error) {
	for {
		err := probe(ctx)
		if ctx.Err() != nil {
			return
		}
		h.pool.judge(h, err)
		// Gateways that start together do not check together.
		pause := checkEvery - checkEvery/10 + rand.N(checkEvery/5)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// probe makes one check. It returns nil if the instance has responded with a status of 2xx.
func (h *host) probe(ctx context.Context) error {
	check := &h.pool.cfg.Check
	deadline := time.Now().Add(check.Timeout)
	c, err := h.dial(ctx, deadline)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.below.Close() })()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := c.Write([]byte(check.request(h.name))); err != nil {
		return err
	}
	var response http1.Response
	switch err := c.reader.ReadResponse(&response, &h.pool.limits, false); {
	case isTimeout(err):
		return fmt.Errorf("no response to GET %s within %v", check.Path, check.Timeout)
	case err != nil:
		return fmt.Errorf("GET %s: %w", check.Path, err)
	case response.Status == http.StatusUnauthorized:
		return fmt.Errorf("GET %s %w 401: %s", check.Path, errResponded, refusedReason)
	case response.Status/100 != 2:
		return fmt.Errorf("GET %s %w %d: %.*q", check.Path, errResponded, response.Status, reasonRunesMax,
			response.Body.Bytes)
	}
	return nil
}

// errResponded says that an instance has responded to a check with a status other than 2xx.
var errResponded = errors.New("responded with")

// reasonRunesMax is how much of a response's body the log quotes.
const reasonRunesMax = 200

// isCertain reports whether a failed check cannot be a matter of slowness.
func isCertain(err error) bool {
	return errors.Is(err, errResponded) || isCertificate(err) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ENOENT)
}

// judge applies the result of a check, and logs if that changes what the instance gets.
func (p *Pool) judge(h *host, err error) {
	p.checking.Lock()
	defer p.checking.Unlock()
	s, log := &h.standing, p.cfg.Log.With("upstream", h.address)
	was := h.effect()
	if err == nil {
		*s = standing{}
		h.outUntil.CompareAndSwap(untilChecked, 0)
		if was != "" {
			log.Info("the check of an upstream succeeds again")
		}
		return
	}
	h.checkFailures.Add(1)
	s.missed++
	if s.cause == nil && s.missed < failuresToEject && !isCertain(err) {
		return
	}
	if s.cause == nil {
		s.since = time.Now()
	}
	s.cause = err
	if p.hasOther(h, time.Now()) && h.outUntil.Swap(untilChecked) != untilChecked {
		h.ejections.Add(1)
	}
	if is := h.effect(); is != was {
		log.Warn("the check of an upstream fails: "+is, "error", err.Error())
	}
}

// effect says what the failures of its checks mean for the instance. It is empty if they succeed.
func (h *host) effect() string {
	switch {
	case h.isCheckedOut():
		return "until it succeeds, the upstream gets only requests that no other upstream takes"
	case h.standing.cause != nil:
		return "it still gets requests, because no other upstream does"
	}
	return ""
}

// hasOther reports whether an instance at another address is in.
func (p *Pool) hasOther(h *host, now time.Time) bool {
	for _, other := range p.hosts {
		if other.address != h.address && other.isIn(now.UnixMilli()) {
			return true
		}
	}
	return false
}

// Problems says what is wrong with instances, for people: they do not accept this gateway, their
// certificate is not valid, or their checks fail.
func (p *Pool) Problems() (found []string) {
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	p.checking.Lock()
	defer p.checking.Unlock()
	for _, h := range p.hosts {
		var trouble error
		if why := h.trouble.Load(); why != nil {
			trouble = *why
		}
		s := &h.standing
		switch {
		case errors.Is(trouble, ErrRefused):
			add("%s responded with 401, so requests get 502 upstream_refused: %s", h.address, refusedReason)
		case isCertificate(trouble):
			add("%s: %v: so it gets no requests, and they get 502 upstream_certificate if there is no other upstream; "+
				"if its certificate is from your own authority, name that in GATEWAY_UPSTREAM_CA", h.address, trouble)
		case trouble != nil && s.cause == nil:
			add("the last requests to %s failed, and none has succeeded since: the log says why", h.address)
		}
		if s.cause != nil {
			add("the check of %s fails since %s: %v; %s", h.address, s.since.UTC().Format(time.RFC3339), s.cause,
				h.effect())
		}
	}
	return found
}
