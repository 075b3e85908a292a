package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/core/id"
)

// Config says what is behind a Pool. All of it is required.
type Config struct {
	URLs           []string      // http://host:port or unix:/path
	Timeout        time.Duration // for an exchange, a second attempt and dialing included
	IdleTimeout    time.Duration // how long an unused connection is kept
	ConnsMax       int           // how many requests an instance is given at a time
	TenantConnsMax int           // how many of them may be one tenant's
	HeaderBytesMax int           // of a response
	BodyBytesMax   int           // of a response
	Log            *slog.Logger
}

// Why a request has no response.
var (
	ErrUnreachable = errors.New("upstream: no usable response")
	ErrOverloaded  = errors.New("upstream: as many requests as it may be given; nothing was sent")
	ErrTimeout     = errors.New("upstream: no response in time")
)

// Request is what is sent. The request is Head and then Body.
type Request struct {
	Tenant     id.Tenant
	Head, Body []byte
	IsHead     bool // a response to it has no content
	MayRepeat  bool // it may be sent twice
	At         time.Time
}

// Pool spreads requests over the instances of a service. Its methods are safe for concurrent use.
type Pool struct {
	cfg     Config
	limits  http1.Limits
	hosts   []*host
	retries atomic.Int64
}

// hostsMax is as many as a set of hosts has bits.
const hostsMax = 64

// New returns a pool. It connects to nothing yet.
func New(cfg Config) (*Pool, error) {
	if n := len(cfg.URLs); n == 0 || n > hostsMax {
		return nil, fmt.Errorf("there are %d upstreams: give 1 to %d", n, hostsMax)
	}
	p := &Pool{cfg: cfg, limits: http1.Limits{
		FieldBytesMax: cfg.HeaderBytesMax, FieldsMax: cfg.HeaderBytesMax, BodyBytesMax: cfg.BodyBytesMax, BodyStepBytes: bodyStepBytes,
	}}
	var wrong []error
	for i, text := range cfg.URLs {
		network, address, err := parseURL(text)
		wrong = append(wrong, err)
		p.hosts = append(p.hosts, &host{network: network, address: address, bit: 1 << i, pool: p, shares: make(map[id.Tenant]int)})
	}
	return p, errors.Join(wrong...)
}

// bodyStepBytes is how much memory an upstream's word gets that so many bytes will come.
const bodyStepBytes = 64 << 10

// CheckURL reports what is wrong with the URL of an upstream.
func CheckURL(text string) error {
	_, _, err := parseURL(text)
	return err
}

// parseURL reads http://host:port or unix:/path.
func parseURL(text string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return "unix", path, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		return "", "", fmt.Errorf("%q is not an upstream: use http://host:port or unix:/path", text)
	}
	if u.Port() == "" {
		return "tcp", net.JoinHostPort(u.Hostname(), "80"), nil
	}
	return "tcp", u.Host, nil
}

// Send sends a request and reads its response within the timeout, which counts from request.At. There is one attempt, and a
// second one only where it can do no harm: if MayRepeat, when a connection that had served before died without a byte. An
// instance that cannot be dialed was sent nothing: any request may go to the next one.
func (p *Pool) Send(request *Request, response *http1.Response) error {
	deadline := request.At.Add(p.cfg.Timeout)
	mayRepeat := request.MayRepeat
	var tried uint64
	for {
		h := p.pick(tried, request.At.UnixMilli())
		if h == nil {
			return ErrUnreachable
		}
		switch outcome := h.try(request, response, deadline); {
		case outcome == answered:
			return nil
		case outcome == full:
			return ErrOverloaded
		case outcome == late:
			return ErrTimeout
		case outcome == unconnected:
			tried |= h.bit
		case outcome == died && mayRepeat:
			mayRepeat = false
			p.retries.Add(1)
		default:
			return ErrUnreachable
		}
	}
}

// pick returns the least loaded healthy instance that is not among those tried, else the least loaded of the ejected ones: when
// all fail, to try one is better than to refuse. It returns nil when all have been tried.
func (p *Pool) pick(tried uint64, now int64) *host {
	var best *host
	var bestLoad int64
	offset := 0
	if len(p.hosts) > 1 {
		offset = rand.IntN(len(p.hosts)) // equals are chosen evenly
	}
	for i := range p.hosts {
		h := p.hosts[(i+offset)%len(p.hosts)]
		load := h.inFlight.Load()
		if h.ejectedUntil.Load() > now {
			load += 1 << 32
		}
		if tried&h.bit == 0 && (best == nil || load < bestLoad) {
			best, bestLoad = h, load
		}
	}
	return best
}

// Retries is how many requests were sent a second time.
func (p *Pool) Retries() int64 { return p.retries.Load() }

// Ejected is how many instances get nothing for now.
func (p *Pool) Ejected(now time.Time) (n int) {
	for _, h := range p.hosts {
		if h.ejectedUntil.Load() > now.UnixMilli() {
			n++
		}
	}
	return n
}

// CloseIdle closes all unused connections.
func (p *Pool) CloseIdle() {
	for _, h := range p.hosts {
		for c := h.pop(); c != nil; c = h.pop() {
			_ = c.Close()
		}
	}
}
