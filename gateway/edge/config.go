package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
)

// Config is what can be set of an edge. A zero takes the default that is named.
type Config struct {
	// Environment is whose keys are served; the others' are refused. Live.
	Environment apikey.Environment

	// TrustedProxies are the peers whose X-Forwarded-For and X-Forwarded-Proto are believed. None.
	//
	// Danger: any client within these networks can claim any address.
	TrustedProxies []netip.Prefix

	// Upstreams are where requests are forwarded: http://host:port or unix:/path. At least one.
	Upstreams []string

	// UpstreamSecret goes to upstreams as X-Gateway-Secret, so that they can refuse everybody else. Empty sends none.
	UpstreamSecret string

	// UpstreamTimeout is for a whole exchange with an upstream, a second attempt and dialing included. 10 s.
	UpstreamTimeout time.Duration

	// UpstreamConnsMax is how many requests one upstream may be given at a time. 512.
	UpstreamConnsMax int

	// UpstreamIdleTimeout is how long an unused connection to an upstream is kept. 30 s.
	//
	// Danger: longer than the upstream keeps it, and a POST can meet a connection that is just being closed.
	UpstreamIdleTimeout time.Duration

	// UpstreamHeaderBytesMax and UpstreamBodyBytesMax bound an upstream's answer. 16 KiB and 8 MiB.
	UpstreamHeaderBytesMax, UpstreamBodyBytesMax int

	// BanRule is the schedule by which keys that ignore their refusals are banned. The zero rule bans nobody.
	BanRule ban.Rule

	// ReadTimeout is for a request's head, and again for its body. 4 s.
	//
	// Danger: it is what ends clients that send slowly on purpose.
	ReadTimeout time.Duration

	// WriteTimeout is for a response to be taken by the client. 5 s.
	WriteTimeout time.Duration

	// IdleTimeout is how long a connection may be silent between two requests. 60 s.
	IdleTimeout time.Duration

	// TargetBytesMax, HeaderBytesMax, FieldsMax and BodyBytesMax bound a request. 8 KiB, 16 KiB, 100 and 1 MiB.
	TargetBytesMax, HeaderBytesMax, FieldsMax, BodyBytesMax int

	// ConcurrencyMax is how many requests are served at a time; what exceeds it is refused. 4,096.
	ConcurrencyMax int

	// ConnectionsMax is how many connections are held; what exceeds it is refused. 32,768.
	//
	// Danger: the process needs a file descriptor for each.
	ConnectionsMax int

	// TLS serves HTTPS. ALPN is set to HTTP/1.1. Nil serves plain HTTP.
	TLS *tls.Config
}

const upstreamsMax = 64 // as many as a set of them has bits

// withDefaults fills in zeros, and names everything that is wrong at once.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	number := func(name string, n *int, unset int) {
		if *n == 0 {
			*n = unset
		}
		if *n < 0 {
			complain("%s is negative", name)
		}
	}
	duration := func(name string, d *time.Duration, unset time.Duration) {
		if *d == 0 {
			*d = unset
		}
		if *d < 0 {
			complain("%s is negative", name)
		}
	}
	if c.Environment == 0 {
		c.Environment = apikey.Live
	}
	if n := len(c.Upstreams); n == 0 || n > upstreamsMax {
		complain("there are %d upstreams: give 1 to %d", n, upstreamsMax)
	}
	for _, url := range c.Upstreams {
		wrong = append(wrong, CheckUpstream(url))
	}
	wrong = append(wrong, CheckSecret(c.UpstreamSecret))
	duration("UpstreamTimeout", &c.UpstreamTimeout, 10*time.Second)
	number("UpstreamConnsMax", &c.UpstreamConnsMax, 512)
	duration("UpstreamIdleTimeout", &c.UpstreamIdleTimeout, 30*time.Second)
	number("UpstreamHeaderBytesMax", &c.UpstreamHeaderBytesMax, 16<<10)
	number("UpstreamBodyBytesMax", &c.UpstreamBodyBytesMax, 8<<20)
	duration("ReadTimeout", &c.ReadTimeout, 4*time.Second)
	duration("WriteTimeout", &c.WriteTimeout, 5*time.Second)
	duration("IdleTimeout", &c.IdleTimeout, time.Minute)
	number("TargetBytesMax", &c.TargetBytesMax, 8<<10)
	number("HeaderBytesMax", &c.HeaderBytesMax, 16<<10)
	number("FieldsMax", &c.FieldsMax, 100)
	number("BodyBytesMax", &c.BodyBytesMax, 1<<20)
	number("ConcurrencyMax", &c.ConcurrencyMax, 4096)
	number("ConnectionsMax", &c.ConnectionsMax, 32768)
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.NextProtos = []string{"http/1.1"}
	}
	return c, errors.Join(wrong...)
}

// CheckUpstream reports what is wrong with the URL of an upstream.
func CheckUpstream(url string) error {
	_, _, err := parseUpstream(url)
	return err
}

// CheckSecret reports what is wrong with an upstream secret.
func CheckSecret(secret string) error {
	if !all([]byte(secret), valueByte) || strings.TrimSpace(secret) != secret {
		return errors.New("the upstream secret cannot stand in a header field")
	}
	return nil
}

// headBytesMax is how much of a request may come before its empty line.
func (c *Config) headBytesMax() int {
	return c.TargetBytesMax + c.HeaderBytesMax + 4*c.FieldsMax + methodBytesMax + 64
}
