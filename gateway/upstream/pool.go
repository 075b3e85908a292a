package upstream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"petgate/gateway/http1"
	"petgate/shared/core/id"
)

// Config configures a Pool. All fields but Check are required.
type Config struct {
	URLs                   []string      // http://host:port, https://host or unix:/path
	Host                   string        // sent as Host; empty: the host of the URL
	TLS                    *tls.Config   // for https; nil: that of package tls
	Timeout                time.Duration // of an exchange, including a second attempt and dialing
	DialTimeout            time.Duration // of a new connection, with the handshake of TLS
	IdleTimeout            time.Duration // how long an unused connection is kept
	ConnsMax               int           // how many requests an instance gets at a time
	UpstreamConnsPerTenant int           // that one tenant may have of them, if nine tenths of ConnsMax are in use
	HeaderBytesMax         int           // of a response
	BodyBytesMax           int           // of a response
	Check                  Check
	Log                    *slog.Logger
}

// Why a request has no response.
var (
	ErrUnreachable = errors.New("it cannot be reached")                   // nothing was sent
	ErrUntrusted   = errors.New("its certificate is not valid")           // nothing was sent
	ErrRefused     = errors.New("it responds with 401: " + refusedReason) // it did not carry out the request
	ErrOverloaded  = errors.New("it has no slot in time")                 // nothing was sent
	ErrBroken      = errors.New("no valid response")                      // it got the request
	ErrTimeout     = errors.New("no response in time")                    // it may have got the request
	ErrCut         = errors.New("the body of the request broke off")
)

// refusedReason is what a 401 means, and its cure. Upstreams do not get the client's Authorization,
// so a 401 concerns the gateway.
const refusedReason = "it does not accept this gateway; " +
	"set GATEWAY_UPSTREAM_SECRET to the secret that it expects, for petsvc its PETSVC_SECRET"

// Request is a request to an upstream: the head, then Body, then what Source has more.
type Request struct {
	Tenant    id.Tenant
	Source    Source
	Body      []byte // the body without what came with the head; of a long one, only its first part
	HasMore   bool   // Source has further parts of the body
	IsChunked bool   // the length of the body is not announced
	IsHead    bool   // a response to it has no content
	MayRepeat bool   // it may be sent twice; not if HasMore
	At        time.Time

	holding *holding      // its tenant's
	on      *host         // where it has a slot; nil: nowhere
	granted chan struct{} // closed when it has got a slot that it waited for
	conn    *conn         // on which the rest of its response arrives; nil: nothing arrives
	sent    chan error    // gets the result of sending Body and what follows; nil: nothing is sent
}

// Source makes a request.
type Source interface {
	// Head returns the head for an instance with this Host, and a short body.
	Head(host string) []byte
	// More returns the next part of a long body, or io.EOF after the last one. It is called in
	// another goroutine than Send.
	More() ([]byte, error)
	// Stop ends More, also if it waits.
	Stop()
}

// drop ends the exchange of a request whose response has not arrived to its end.
func (r *Request) drop() {
	if c := r.conn; c != nil {
		r.conn = nil
		_ = c.below.Close()
		_ = c.endSending(r, &http1.Response{}, nil)
		_ = c.Close()
	}
}

// Pool spreads requests over the instances of a service. Its methods are safe for concurrent use.
type Pool struct {
	cfg     Config
	limits  http1.Limits
	hosts   []*host
	retries atomic.Int64
	slots

	checking sync.Mutex // guards the standing of all hosts
}

// hostsMax is the number of bits in a set of hosts.
const hostsMax = 64

// New returns a pool. It connects to nothing yet.
func New(cfg Config) (*Pool, error) {
	if n := len(cfg.URLs); n == 0 || n > hostsMax {
		return nil, fmt.Errorf("there are %d upstreams: give 1 to %d", n, hostsMax)
	}
	p := &Pool{cfg: cfg, limits: http1.Limits{
		FieldBytesMax: cfg.HeaderBytesMax,
		FieldsMax:     cfg.HeaderBytesMax,
		BodyBytesMax:  cfg.BodyBytesMax,
		BodyStepBytes: bodyStepBytes,
	}}
	p.holdings.Init(0)
	var wrong []error
	for i, text := range cfg.URLs {
		at, err := parseURL(text)
		wrong = append(wrong, err)
		h := &host{
			endpoint: at, name: cmp.Or(cfg.Host, at.url.Host, "localhost"), bit: 1 << i, pool: p,
			logs: rate.Sometimes{Interval: logEvery},
		}
		if at.url.Scheme == "https" {
			h.tls = &tls.Config{}
			if cfg.TLS != nil {
				h.tls = cfg.TLS.Clone()
			}
			h.tls.MinVersion, h.tls.ServerName = tls.VersionTLS12, at.url.Hostname()
			h.tls.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		}
		p.hosts = append(p.hosts, h)
	}
	return p, errors.Join(wrong...)
}

// bodyStepBytes is the step in which memory for a response grows. The announced length does not
// matter.
const bodyStepBytes = 64 << 10

// ports are those of a URL without one.
var ports = map[string]string{"http": "80", "https": "443"}

// endpoint is where an instance can be reached.
type endpoint struct {
	network, address string
	url              *url.URL // empty for the path of a socket
}

// parseURL reads http://host:port, https://host or unix:/path.
func parseURL(text string) (endpoint, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return endpoint{"unix", path, &url.URL{}}, nil
	}
	u, err := url.Parse(text)
	hasMore := err == nil && (u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "")
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" || hasMore {
		err = fmt.Errorf("%q is not an upstream: use http://host:port, https://host:port or unix:/path", text)
		return endpoint{url: &url.URL{}}, err
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), ports[u.Scheme]))
	return endpoint{"tcp", address, u}, nil
}

// Send sends a request that has a slot, and reads its response within the timeout, which counts
// from request.At. It sends a request a second time only if MayRepeat, and if a connection that had
// served before ended without a byte of the response. If an instance cannot be dialed, nothing was
// sent, and any request may go to the next instance that has a slot. The same holds for an instance
// that responds with 401. If a second attempt gets a status of 500 or more, Send returns ErrBroken:
// the first one may have been carried out.
func (p *Pool) Send(request *Request, response *http1.Response) error {
	deadline := request.At.Add(p.cfg.Timeout)
	mayRepeat, tried, failure := request.MayRepeat, uint64(0), ErrUnreachable
	for {
		h := request.on
		err := h.try(request, response, deadline, mayRepeat)
		switch {
		case err == nil && failure == ErrBroken && response.Status >= 500:
			request.drop()
			return ErrBroken // the response cannot say what the first attempt did
		case err == nil:
			return nil
		case errors.Is(err, errDied):
			mayRepeat = false
			failure = ErrBroken // unless another attempt succeeds: this one may have been carried out
			p.retries.Add(1)
		case errors.Is(err, ErrRefused) && request.HasMore: // a part of the body is gone
			return err
		case errors.Is(err, ErrUnreachable), errors.Is(err, ErrUntrusted), errors.Is(err, ErrRefused):
			tried |= h.bit
			if errors.Is(failure, ErrUnreachable) {
				failure = err
			}
		default:
			return err
		}
		if !p.move(request, tried) {
			return failure
		}
	}
}

// Next replaces the part of the response's body that has been read by the next one. It waits for
// the timeout, and returns ErrTimeout if nothing has arrived: then it may be called again. After
// the last part, the request has no slot.
func (r *Request) Next(response *http1.Response, timeout time.Duration) error {
	c := r.conn
	_ = c.SetReadDeadline(time.Now().Add(timeout)) // if the connection is closed, the read fails too
	err := c.reader.ReadPart(response, &c.host.pool.limits)
	if isTimeout(err) {
		return ErrTimeout
	}
	if err != nil || response.Body.IsComplete() {
		err = c.endSending(r, response, err)
	}
	switch {
	case errors.Is(err, ErrCut): // not by the instance
		return ErrBroken
	case err != nil:
		c.host.fail(err)
		return ErrBroken
	case response.Body.IsComplete() && response.IsReusable:
		r.conn = nil
		c.host.release(c, time.Now())
	}
	if response.Body.IsComplete() {
		r.Leave()
	}
	return nil
}

// IsSending reports whether the body is still being sent.
func (r *Request) IsSending() bool { return r.sent != nil }

// pick returns the least loaded healthy instance that was not tried yet. If there is none, it
// returns the least loaded of those that requests have ejected, or else of those that a check has
// taken out: that is better than a refusal. It returns nil if all were tried.
func (p *Pool) pick(tried uint64, now int64) *host {
	var best *host
	var bestLoad int
	offset := 0
	if len(p.hosts) > 1 {
		offset = rand.IntN(len(p.hosts)) // equal instances are chosen evenly
	}
	for i := range p.hosts {
		h := p.hosts[(i+offset)%len(p.hosts)]
		load := h.inFlight
		if h.isCheckedOut() {
			load += 2 << 32
		} else if !h.isIn(now) {
			load += 1 << 32
		}
		if tried&h.bit == 0 && (best == nil || load < bestLoad) {
			best, bestLoad = h, load
		}
	}
	return best
}

// failing returns the instances that requests have ejected. now is in Unix ms.
func (p *Pool) failing(now int64) (set uint64) {
	for _, h := range p.hosts {
		if !h.isIn(now) && !h.isCheckedOut() {
			set |= h.bit
		}
	}
	return set
}

// Stats describes one instance: its connections now, and what has happened since the start.
type Stats struct {
	Address    string
	Open, Idle int64 // connections; idle ones are open and carry no request
	Failures   int64 // dials and exchanges that failed, unless they were repeated, and responses with 401
	Ejections  int64
	IsEjected  bool // others are preferred

	CheckFailures int64
}

// Stats returns the figures of every instance. Instances with the same address are one.
func (p *Pool) Stats(now time.Time) (all []Stats) {
	for _, h := range p.hosts {
		at := slices.IndexFunc(all, func(s Stats) bool { return s.Address == h.address })
		if at < 0 {
			at = len(all)
			all = append(all, Stats{Address: h.address, IsEjected: true})
		}
		s := &all[at]
		s.Open += h.open.Load()
		s.Failures += h.failed.Load()
		s.Ejections += h.ejections.Load()
		s.CheckFailures += h.checkFailures.Load()
		s.IsEjected = s.IsEjected && !h.isIn(now.UnixMilli())
		h.mu.Lock()
		s.Idle += int64(len(h.idle))
		h.mu.Unlock()
	}
	return all
}

// CloseIdle closes all unused connections.
func (p *Pool) CloseIdle() {
	for _, h := range p.hosts {
		for c := h.pop(); c != nil; c = h.pop() {
			_ = c.Close()
		}
	}
}
