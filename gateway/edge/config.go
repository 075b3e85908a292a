package edge

import (
	"cmp"
	"crypto/tls"
	"errors"
	"math"
	"net/netip"
	"strings"
	"time"

	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
)

// Config is the configuration of an edge, which the program has checked. A field that states a default may be zero. All other fields are
// required, except
// UpstreamSecret, UpstreamHealthPath, TrustedProxies, BanRule, CORSOrigins and TLS.
type Config struct {
	// Environment is the environment whose keys are served. Keys of the other environment are refused.
	Environment apikey.Environment

	// KeyPrefix is the prefix of the tokens of new keys, for messages. Default: apikey.DefaultPrefix.
	KeyPrefix string

	// TrustedProxies are the peers whose X-Forwarded-For and X-Forwarded-Proto the gateway trusts.
	//
	// Danger: any client within these networks can claim any address.
	TrustedProxies []netip.Prefix

	// Upstreams are where requests are forwarded: http://host:port, https://host:port or unix:/path. Those of an operation's own service
	// have its name before them, as in orders=http://host:port.
	Upstreams []string

	// UpstreamSecret is sent to upstreams as X-Gateway-Secret, so that they can refuse requests without it. Empty: not
	// sent.
	UpstreamSecret string

	// UpstreamTimeout limits a whole exchange with an upstream, including a second attempt and dialing.
	UpstreamTimeout time.Duration

	// UpstreamConnsMax is how many requests one upstream gets at a time. Default: 512.
	UpstreamConnsMax int

	// UpstreamIdleTimeout is how long an unused connection to an upstream is kept. Default: 30 s.
	//
	// Danger: if the upstream closes unused connections earlier, a POST can be sent on a connection that is just being
	// closed.
	UpstreamIdleTimeout time.Duration

	// UpstreamHealthPath is what the gateway asks of each upstream once a second, to find those that are not well before a request
	// does. Empty: they are not asked.
	UpstreamHealthPath string

	// UpstreamHost is the Host of requests to upstreams: KeepHost for the client's, OwnHost for the one of the upstream's URL, or a name.
	// Default: OwnHost.
	UpstreamHost string

	// UpstreamTLS has the authorities of upstreams with https. Nil: those of the system.
	UpstreamTLS *tls.Config

	// ResponseBytesMax bounds the body of an upstream's response. Default: no bound.
	ResponseBytesMax int

	// BanRule says when, and for how long, keys that ignore their refusals are banned. The zero rule bans no key.
	BanRule ban.Rule

	// ReadTimeout limits the time for a request's head, and again for its body.
	//
	// Danger: the longer it is, the longer a client that sends slowly on purpose holds its connection.
	ReadTimeout time.Duration

	// WriteTimeout limits the time in which a client must read a response. Default: 5 s.
	WriteTimeout time.Duration

	// IdleTimeout is how long a connection may be silent between two requests. Default: 75 s.
	IdleTimeout time.Duration

	// TargetBytesMax and HeaderBytesMax bound the head of a request. Default: 8 KiB and 16 KiB.
	TargetBytesMax, HeaderBytesMax int

	// BodyBytesMax bounds the body of a request.
	BodyBytesMax int

	// BodiesBytesMax bounds the memory for the bodies of all requests together; requests above it are refused. The large
	// bodies of one tenant get at most half of it.
	BodiesBytesMax int

	// HeadsBytesMax bounds the memory for heads that do not fit a connection's own buffer of 512 bytes and are still arriving.
	// Above it, each further head closes the connection whose head has been arriving for longest. Default: 64 MiB.
	HeadsBytesMax int

	// TenantConnsMax is how many requests of one tenant an upstream gets at a time when nine tenths of UpstreamConnsMax are taken.
	TenantConnsMax int

	// ConcurrencyMax is how many requests are served at a time; further requests are refused.
	ConcurrencyMax int

	// ConnectionsMax is how many connections are held. Above it, a new connection closes an idle one, or is refused. When nine
	// tenths of the maximum are held, a tenant that holds half of the maximum gets no more, except from TrustedProxies.
	//
	// Danger: the process needs a file descriptor for each.
	ConnectionsMax int

	// CORSOrigins are the origins whose scripts may read responses; "*" is all of them. Default: none.
	CORSOrigins []string

	// TLS serves HTTPS. ALPN is set to HTTP/1.1. Nil serves plain HTTP.
	TLS *tls.Config
}

// setDefaults fills in the defaults of fields that are zero.
func (c *Config) setDefaults() {
	c.KeyPrefix = cmp.Or(c.KeyPrefix, apikey.DefaultPrefix)
	c.UpstreamConnsMax = cmp.Or(c.UpstreamConnsMax, upstreamConnsMax)
	c.UpstreamIdleTimeout = cmp.Or(c.UpstreamIdleTimeout, 30*time.Second)
	c.ResponseBytesMax = cmp.Or(c.ResponseBytesMax, math.MaxInt)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 75*time.Second)
	c.TargetBytesMax = cmp.Or(c.TargetBytesMax, 8<<10)
	c.HeaderBytesMax = cmp.Or(c.HeaderBytesMax, 16<<10)
	c.HeadsBytesMax = cmp.Or(c.HeadsBytesMax, 64<<20)
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.NextProtos = []string{"http/1.1"}
	}
}

const (
	upstreamConnsMax       = 512 // the default of UpstreamConnsMax
	upstreamHeaderBytesMax = 16 << 10
	fieldsMax              = 100 // of a request
)

// upstreamHealthTimeout limits a check of an upstream. It is far below UpstreamTimeout, so a check finds an upstream that hangs first.
const upstreamHealthTimeout = time.Second

// Values of UpstreamHost.
const (
	KeepHost = "keep"
	OwnHost  = "upstream"
)

// upstreamHost returns the Host for all upstreams; empty: each has its own.
func (c *Config) upstreamHost() string {
	if c.UpstreamHost == KeepHost || c.UpstreamHost == OwnHost {
		return ""
	}
	return c.UpstreamHost
}

// Descriptors returns how many file descriptors clients and upstreams may need.
func (c *Config) Descriptors() int {
	return c.ConnectionsMax + front.RefusedMax + front.LingeringMax + len(c.Upstreams)*cmp.Or(c.UpstreamConnsMax, upstreamConnsMax)
}

// CheckSecret returns an error if an upstream secret is invalid.
func CheckSecret(secret string) error {
	if !http1.IsValue([]byte(secret)) || strings.TrimSpace(secret) != secret {
		return errors.New("the upstream secret has characters that a header field cannot have")
	}
	return nil
}

// http returns the settings of package http1.
func (c *Config) http() http1.Settings {
	s := http1.Settings{
		Limits: http1.Limits{
			TargetBytesMax: c.TargetBytesMax, FieldBytesMax: c.HeaderBytesMax, FieldsMax: fieldsMax,
			BodyBytesMax: c.BodyBytesMax, BodyStepBytes: bodyStepBytes, Bodies: http1.NewBudget(c.BodiesBytesMax),
			Heads: http1.NewBudget(c.HeadsBytesMax),
		},
		Timeouts: http1.Timeouts{Read: c.ReadTimeout, Write: c.WriteTimeout, Idle: c.IdleTimeout},
	}
	s.Buffers = http1.NewBuffers(&s.Limits)
	return s
}

// bodyStepBytes is how much memory a body gets before its first byte has arrived.
const bodyStepBytes = 1024
