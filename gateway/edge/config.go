package edge

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"petgate/gateway/http1"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
)

// Config is what can be set of an edge. A field that names a default may be left zero; all others are required, but for Upstreams'
// secret, TrustedProxies, BanRule and TLS.
type Config struct {
	// Environment is whose keys are served. Keys of the other environment are refused.
	Environment apikey.Environment

	// TrustedProxies are the peers whose X-Forwarded-For and X-Forwarded-Proto are believed.
	//
	// Danger: any client within these networks can claim any address.
	TrustedProxies []netip.Prefix

	// Upstreams are where requests are forwarded: http://host:port or unix:/path.
	Upstreams []string

	// UpstreamSecret is sent to upstreams as X-Gateway-Secret: they can refuse requests without it. Empty sends none.
	UpstreamSecret string

	// UpstreamTimeout is for a whole exchange with an upstream, a second attempt and dialing included.
	UpstreamTimeout time.Duration

	// UpstreamConnsMax is how many requests one upstream may be given at a time. Default: 512.
	UpstreamConnsMax int

	// UpstreamIdleTimeout is how long an unused connection to an upstream is kept. Default: 30 s.
	//
	// Danger: longer than the upstream keeps it, and a POST can meet a connection that is just being closed.
	UpstreamIdleTimeout time.Duration

	// UpstreamHeaderBytesMax and UpstreamBodyBytesMax bound an upstream's answer. Default: 16 KiB and 8 MiB.
	UpstreamHeaderBytesMax, UpstreamBodyBytesMax int

	// BanRule is the schedule by which keys that ignore their refusals are banned. The zero rule bans none.
	BanRule ban.Rule

	// ReadTimeout is for a request's head, and again for its body.
	//
	// Danger: it is what ends clients that send slowly on purpose.
	ReadTimeout time.Duration

	// WriteTimeout is for a response to be taken by the client. Default: 5 s.
	WriteTimeout time.Duration

	// IdleTimeout is how long a connection may be silent between two requests. Default: 60 s.
	IdleTimeout time.Duration

	// TargetBytesMax, HeaderBytesMax and FieldsMax bound the head of a request. Default: 8 KiB, 16 KiB and 100.
	TargetBytesMax, HeaderBytesMax, FieldsMax int

	// BodyBytesMax bounds the body of a request.
	BodyBytesMax int

	// BodiesBytesMax bounds the memory of all bodies of requests together; what exceeds it is refused.
	BodiesBytesMax int

	// TenantConnsMax is how many requests of one tenant an upstream may be given at a time.
	TenantConnsMax int

	// ConcurrencyMax is how many requests are served at a time; what exceeds it is refused.
	ConcurrencyMax int

	// ConnectionsMax is how many connections are held; what exceeds it is refused.
	//
	// Danger: the process needs a file descriptor for each.
	ConnectionsMax int

	// TLS serves HTTPS. ALPN is set to HTTP/1.1. Nil serves plain HTTP.
	TLS *tls.Config
}

// setDefaults fills in the settings that no program sets.
func (c *Config) setDefaults() {
	number := func(n *int, unset int) {
		if *n == 0 {
			*n = unset
		}
	}
	duration := func(d *time.Duration, unset time.Duration) {
		if *d == 0 {
			*d = unset
		}
	}
	number(&c.UpstreamConnsMax, upstreamConnsMax)
	duration(&c.UpstreamIdleTimeout, 30*time.Second)
	number(&c.UpstreamHeaderBytesMax, 16<<10)
	number(&c.UpstreamBodyBytesMax, 8<<20)
	duration(&c.WriteTimeout, 5*time.Second)
	duration(&c.IdleTimeout, time.Minute)
	number(&c.TargetBytesMax, 8<<10)
	number(&c.HeaderBytesMax, 16<<10)
	number(&c.FieldsMax, 100)
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.NextProtos = []string{"http/1.1"}
	}
}

// upstreamConnsMax is the default.
const upstreamConnsMax = 512

// Descriptors is how many file descriptors clients and upstreams may need.
func (c *Config) Descriptors() int {
	return c.ConnectionsMax + refusedMax + len(c.Upstreams)*cmp.Or(c.UpstreamConnsMax, upstreamConnsMax)
}

// check names everything that is wrong with the settings that are required.
func (c *Config) check() error {
	var wrong []error
	require := func(name string, isSet bool) {
		if !isSet {
			wrong = append(wrong, fmt.Errorf("%s must be set", name))
		}
	}
	require("Environment", c.Environment != 0)
	require("UpstreamTimeout", c.UpstreamTimeout > 0)
	require("ReadTimeout", c.ReadTimeout > 0)
	require("BodyBytesMax", c.BodyBytesMax > 0)
	require("BodiesBytesMax", c.BodiesBytesMax > 0)
	require("TenantConnsMax", c.TenantConnsMax > 0)
	require("ConcurrencyMax", c.ConcurrencyMax > 0)
	require("ConnectionsMax", c.ConnectionsMax > 0)
	return errors.Join(append(wrong, CheckSecret(c.UpstreamSecret))...)
}

// CheckSecret reports what is wrong with an upstream secret.
func CheckSecret(secret string) error {
	if !http1.IsValue([]byte(secret)) || strings.TrimSpace(secret) != secret {
		return errors.New("the upstream secret cannot stand in a header field")
	}
	return nil
}

// http is what http1 has to know.
func (c *Config) http() http1.Settings {
	s := http1.Settings{
		Limits: http1.Limits{
			TargetBytesMax: c.TargetBytesMax, FieldBytesMax: c.HeaderBytesMax, FieldsMax: c.FieldsMax,
			BodyBytesMax: c.BodyBytesMax, BodyStepBytes: bodyStepBytes, Bodies: http1.NewBudget(c.BodiesBytesMax),
		},
		Timeouts: http1.Timeouts{Read: c.ReadTimeout, Write: c.WriteTimeout, Idle: c.IdleTimeout},
	}
	s.Buffers = http1.NewBuffers(&s.Limits)
	return s
}

// bodyStepBytes is how much memory a client gets for a body before any of it has come.
const bodyStepBytes = 1024
