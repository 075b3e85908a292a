package upstream

import (
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
	URLs           []string      // http://host:port or unix:/path
	Timeout        time.Duration // of an exchange, including a second attempt and dialing
	IdleTimeout    time.Duration // how long an unused connection is kept
	ConnsMax       int           // how many requests an instance gets at a time
	TenantConnsMax int           // how many of these requests may belong to one tenant when nine tenths of them are there
	HeaderBytesMax int           // of a response
	BodyBytesMax   int           // of a response
	Check          Check
	Log            *slog.Logger
}

// Why a request has no response.
var (
	ErrUnreachable = errors.New("upstream: no instance can be reached; nothing was sent")
	ErrBroken      = errors.New("upstream: it got the request, and sent no valid response")
	ErrOverloaded  = errors.New("upstream: no slot became free in time; nothing was sent")
	ErrTimeout     = errors.New("upstream: no response in time; it may have got the request")
	ErrRefused     = errors.New("upstream: it does not accept this gateway, and did not carry out the request")
)

// Request is a request to an upstream: Head and then Body.
type Request struct {
	Tenant     id.Tenant
	Head, Body []byte
	IsHead     bool // a response to it has no content
	MayRepeat  bool // it may be sent twice
	At         time.Time

	on      *host         // where it has a slot; nil: nowhere
	granted chan struct{} // closed when it has got a slot that it waited for
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
	p := &Pool{cfg: cfg, slots: slots{held: map[id.Tenant]int{}}, limits: http1.Limits{
		FieldBytesMax: cfg.HeaderBytesMax, FieldsMax: cfg.HeaderBytesMax, BodyBytesMax: cfg.BodyBytesMax, BodyStepBytes: bodyStepBytes,
	}}
	var wrong []error
	for i, text := range cfg.URLs {
		network, address, err := parseURL(text)
		wrong = append(wrong, err)
		p.hosts = append(p.hosts, &host{
			network: network, address: address, bit: 1 << i, pool: p,
			logs: rate.Sometimes{Interval: logEvery}, reports: rate.NewLimiter(rate.Every(logEvery), reportsAtOnce),
		})
	}
	return p, errors.Join(wrong...)
}

// bodyStepBytes is the step in which memory for a response grows. The announced length does not matter.
const bodyStepBytes = 64 << 10

// CheckURL returns an error if the URL of an upstream is invalid.
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

// Send sends a request that has a slot, and reads its response within the timeout, which counts from request.At. It sends a request a
// second time only if MayRepeat, and if a connection that had served before ended without a byte of the response. If an instance cannot
// be dialed, nothing was sent, and any request may go to the next instance that has a slot. The same holds for an instance that responds
// with 401. If a second attempt gets a status of 500 or more, Send returns ErrBroken: the first one may have been carried out.
func (p *Pool) Send(request *Request, response *http1.Response) error {
	deadline := request.At.Add(p.cfg.Timeout)
	mayRepeat := request.MayRepeat
	var tried uint64
	failure := ErrUnreachable
	for {
		h := request.on
		switch outcome := h.try(request, response, deadline, mayRepeat); {
		case outcome == answered && failure == ErrBroken && response.Status >= 500:
			return ErrBroken // the response cannot say what the first attempt did
		case outcome == answered:
			return nil
		case outcome == late:
			return ErrTimeout
		case outcome == unconnected:
			tried |= h.bit
		case outcome == refused:
			tried |= h.bit
			if failure == ErrUnreachable {
				failure = ErrRefused
			}
		case outcome == died && mayRepeat:
			mayRepeat = false
			failure = ErrBroken // unless another attempt succeeds: this one may have been carried out
			p.retries.Add(1)
		default:
			return ErrBroken
		}
		if !p.move(request, tried) {
			return failure
		}
	}
}

// pick returns the least loaded healthy instance that was not tried yet. If there is none, it returns the least loaded of those
// that requests have ejected, or else of those that a check has taken out: that is better than a refusal. It returns nil if all
// were tried.
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
		if h.checkedOut.Load() {
			load += 2 << 32
		} else if h.ejectedUntil.Load() > now {
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
		if h.ejectedUntil.Load() > now {
			set |= h.bit
		}
	}
	return set
}

// Retries returns how many requests were sent a second time.
func (p *Pool) Retries() int64 { return p.retries.Load() }

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

// Refusing returns the addresses of the instances whose last response said that they do not accept this gateway.
func (p *Pool) Refusing() (addresses []string) {
	for _, h := range p.hosts {
		if h.isRefusing.Load() {
			addresses = append(addresses, h.address)
		}
	}
	return addresses
}

// CloseIdle closes all unused connections.
func (p *Pool) CloseIdle() {
	for _, h := range p.hosts {
		for c := h.pop(); c != nil; c = h.pop() {
			_ = c.Close()
		}
	}
}
