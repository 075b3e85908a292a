package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"petgate/gateway/http1"
)

// Passive health: an instance that fails several times in a row gets no requests for a while, if
// there is another one. The same holds for an instance that closes a connection after its response:
// it is about to stop, and requests sent to it could be lost.
const (
	failuresToEject = 3
	ejectedFor      = 3 * time.Second
	logEvery        = 3 * time.Second
)

// host is one instance of the service, with its connections.
type host struct {
	endpoint
	name string      // in Host
	tls  *tls.Config // nil: plain HTTP
	bit  uint64      // of this host in a set of hosts
	pool *Pool

	inFlight int                   // requests; the lock of slots.holdings guards it
	failures atomic.Int64          // in a row, since the last ejection
	outUntil atomic.Int64          // Unix ms, by the machine's clock: until then others are preferred; or untilChecked
	trouble  atomic.Pointer[error] // why requests fail; nil: they do not. See fail
	logs     rate.Sometimes

	open, failed, ejections, checkFailures atomic.Int64 // for Stats

	// Pool.checking guards the following.
	standing standing

	mu    sync.Mutex
	idle  []*conn     // in the order of their last use
	sweep *time.Timer // runs while there are idle connections; nil: it does not run
}

// try makes one attempt and updates the instance's health and connections. Its error wraps errDied
// or an error of Send. It is errDied only if mayRepeat is true: another attempt has to follow then.
func (h *host) try(request *Request, response *http1.Response, deadline time.Time, mayRepeat bool) error {
	err := h.attempt(request, response, deadline)
	for errors.Is(err, errStale) {
		err = h.attempt(request, response, deadline)
	}
	switch {
	case err == nil && response.Status == http.StatusUnauthorized:
		request.drop()
		err = ErrRefused
		h.fail(err)
	case err == nil:
		h.succeeded()
		if response.IsLast {
			h.eject()
		}
	case errors.Is(err, errDied) && mayRepeat, errors.Is(err, ErrCut):
	case errors.Is(err, errDied):
		h.note(err) // it does not eject: the instance may have closed an idle connection
		return ErrBroken
	default:
		h.fail(err)
	}
	return err
}

// attempt makes one exchange and keeps its connection if it can be used again. The request keeps it
// while its response arrives.
func (h *host) attempt(request *Request, response *http1.Response, deadline time.Time) (err error) {
	c, err := h.acquire(request.At, deadline)
	switch {
	case isCertificate(err):
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	case err != nil && !time.Now().Before(deadline):
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	err = ErrBroken // in case of a panic
	defer func() {
		switch {
		case err == nil && !response.Body.IsComplete():
			request.conn = c
		case err == nil && response.IsReusable:
			h.release(c, request.At)
		default:
			_ = c.Close()
			_ = c.endSending(request, response, nil)
		}
	}()
	err = c.exchange(request, response)
	return err
}

// acquire takes an idle connection or dials a new one.
func (h *host) acquire(now, deadline time.Time) (*conn, error) {
	for c := h.pop(); c != nil; c = h.pop() {
		if now.Sub(c.usedAt) <= h.pool.cfg.IdleTimeout && c.SetDeadline(deadline) == nil {
			return c, nil
		}
		_ = c.Close()
	}
	c, err := h.dial(context.Background(), deadline)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(deadline); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// dial returns a new connection. With TLS, it has checked the instance's certificate.
func (h *host) dial(ctx context.Context, deadline time.Time) (*conn, error) {
	within := time.Now().Add(h.pool.cfg.DialTimeout)
	if deadline.Before(within) {
		within = deadline
	}
	dialed, err := (&net.Dialer{Deadline: within}).DialContext(ctx, h.network, h.address)
	if err != nil {
		return nil, err
	}
	c := newConn(dialed, h)
	over, ok := c.Conn.(*tls.Conn)
	if !ok {
		return c, nil
	}
	err = c.SetDeadline(within)
	if err == nil {
		err = over.HandshakeContext(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("TLS with %s: %w", h.address, err)
	}
	if trouble := h.trouble.Load(); trouble != nil && isCertificate(*trouble) {
		h.trouble.CompareAndSwap(trouble, nil)
	}
	return c, nil
}

// isCertificate reports whether the certificate of an instance is not valid.
func isCertificate(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}

func (h *host) pop() *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := len(h.idle) - 1
	if last < 0 {
		return nil
	}
	c := h.idle[last]
	h.idle[last] = nil
	h.idle = h.idle[:last]
	return c
}

// release keeps a connection for the next exchange.
func (h *host) release(c *conn, now time.Time) {
	c.reset(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = append(h.idle, c)
	if h.sweep == nil {
		h.sweep = time.AfterFunc(sweepEvery, h.closeStale)
	}
}

// sweepEvery is how often idle connections are checked.
const sweepEvery = time.Second

// closeStale closes the idle connections that the instance has closed or that have been idle for
// too long. Without it they would hold their descriptors until the next burst of requests. It does
// not check connections that were used since the last sweep.
func (h *host) closeStale() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.idle = slices.DeleteFunc(h.idle, func(c *conn) bool {
		unused := time.Since(c.usedAt)
		if unused < sweepEvery || unused <= h.pool.cfg.IdleTimeout && c.check() == nil {
			return false
		}
		_ = c.Close()
		return true
	})
	if len(h.idle) > 0 {
		h.sweep.Reset(sweepEvery)
	} else {
		h.sweep = nil
	}
}

// succeeded ends an ejection by requests. If all instances are ejected, for example because they
// were restarted in turn, the first instance that succeeds gets the requests again.
func (h *host) succeeded() {
	if h.failures.Load() != 0 {
		h.failures.Store(0)
	}
	if until := h.outUntil.Load(); until != 0 && until != untilChecked {
		h.outUntil.CompareAndSwap(until, 0)
	}
	if h.trouble.Load() != nil {
		h.trouble.Store(nil)
	}
}

// fail notes a failure, and ejects the instance after several in a row. A 401, a bad certificate
// and the failure that ejects are kept as the trouble of the instance.
func (h *host) fail(err error) {
	isFailing := h.failures.Add(1) >= failuresToEject
	if isFailing {
		h.failures.Store(0)
		h.eject()
	}
	if isFailing || err == ErrRefused || isCertificate(err) {
		h.trouble.Store(&err)
	}
	h.note(err)
}

// note counts a failure and logs it, but not too often.
func (h *host) note(err error) {
	h.failed.Add(1)
	h.logs.Do(func() { h.pool.cfg.Log.Warn("an upstream fails", "upstream", h.address, "error", err.Error()) })
}

// untilChecked says that a check has taken the instance out, and that a check brings it back.
const untilChecked = math.MaxInt64

// eject prefers other instances for a while.
func (h *host) eject() {
	until := h.outUntil.Load()
	if until != untilChecked && h.outUntil.CompareAndSwap(until, time.Now().Add(ejectedFor).UnixMilli()) {
		h.ejections.Add(1)
	}
}

func (h *host) isCheckedOut() bool { return h.outUntil.Load() == untilChecked }

// isIn reports whether neither requests nor checks have ejected the instance. now is in Unix ms.
func (h *host) isIn(now int64) bool { return h.outUntil.Load() <= now }
