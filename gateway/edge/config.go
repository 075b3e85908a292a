package edge

import (
	"cmp"
	"crypto/tls"
	_ "embed"
	"math"
	"net/netip"
	"time"

	"petgate/gateway/front"
	"petgate/gateway/http1"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/service"
)

//go:embed config.go
var source string

// Config is the configuration of an edge: the settings of the program that concern the public port,
// which have been checked, and fields that only programs set. What has no default is required,
// except UpstreamSecret, UpstreamHealthPath, TrustedProxies, CORSOrigins, BanRule and TLS.
type Config struct {
	// Environment of the keys that are accepted.
	Environment apikey.Environment `env:"GATEWAY_ENVIRONMENT" default:"live" placeholder:"live|test"`

	// Prefix of the tokens of new keys, as in ptg_live_: 2 to 10 lower-case letters. keyadmin and
	// the console use it too. Keys with other prefixes stay valid.
	KeyPrefix string `env:"GATEWAY_KEY_PREFIX" default:"ptg" placeholder:"LETTERS"`

	// Where requests are forwarded: http://host:port, https://host:port or unix:/path, separated by
	// commas. Operations with x-upstream: orders go to those with orders= before them.
	Upstreams []string `env:"GATEWAY_UPSTREAMS" default:"http://127.0.0.1:8081" placeholder:"URL"`

	// Host that upstreams get: the client's (keep), that of the upstream's URL, or a name.
	UpstreamHost string `env:"GATEWAY_UPSTREAM_HOST" default:"upstream" placeholder:"keep|upstream|NAME"`

	// Secret sent to the upstreams, so that they can refuse other clients.
	UpstreamSecret service.Secret `env:"GATEWAY_UPSTREAM_SECRET"`

	// Timeout of a whole exchange with an upstream.
	UpstreamTimeout time.Duration `env:"GATEWAY_UPSTREAM_TIMEOUT" default:"10s"`

	// Path by which each upstream is checked once a second: /readyz for petsvc. Empty: no checks.
	UpstreamHealthPath string `env:"GATEWAY_UPSTREAM_HEALTH_PATH" placeholder:"PATH"`

	// Requests of one tenant that an upstream may have in progress while nine tenths of its 512
	// slots are taken.
	UpstreamConnsPerTenant int `env:"GATEWAY_UPSTREAM_CONNS_PER_TENANT" default:"128" placeholder:"N"`

	// Proxies whose X-Forwarded-For and sampled flag in traceparent are trusted. Every client in
	// these ranges can claim any address.
	TrustedProxies []netip.Prefix `env:"GATEWAY_TRUSTED_PROXIES" placeholder:"CIDR"`

	// Longest request body. The gateway keeps at most 64 KiB of it at a time. The service behind
	// the gateway may have a limit of its own: petsvc has PETSVC_BODY_BYTES_MAX.
	BodyBytesMax int `env:"GATEWAY_BODY_BYTES_MAX" default:"65536" placeholder:"N"`

	// Longest response body. A longer one gets 502, or ends early if its length was not announced.
	// 0: no limit.
	ResponseBytesMax int `env:"GATEWAY_RESPONSE_BYTES_MAX" default:"0" placeholder:"N"`

	// Memory for all request bodies together. Further bodies get 503. The last tenth is for tenants
	// that use little.
	BodiesBytesMax int `env:"GATEWAY_BODIES_BYTES_MAX" default:"268435456" placeholder:"N"`

	// Timeout for a request's head, and again for its body. It ends clients that send too slowly.
	ReadTimeout time.Duration `env:"GATEWAY_READ_TIMEOUT" default:"4s"`

	// How long a client's connection may be silent between two requests. A load balancer in front
	// must close its idle connections earlier.
	IdleTimeout time.Duration `env:"GATEWAY_IDLE_TIMEOUT" default:"75s"`

	// Requests served at the same time. Further requests get 503.
	ConcurrencyMax int `env:"GATEWAY_CONCURRENCY_MAX" default:"4096" placeholder:"N"`

	// Open connections. Each needs a file descriptor. A tenth is for clients without a valid key.
	// At the maximum, a new connection closes the one that has been idle for longest. Once tenants
	// hold 90 %, the rest is for those with few.
	ConnectionsMax int `env:"GATEWAY_CONNECTIONS_MAX" default:"32768" placeholder:"N"`

	// Origins whose scripts may read responses: https://host or https://host:port, separated by
	// commas, or *.
	CORSOrigins []string `name:"cors-origins" env:"GATEWAY_CORS_ORIGINS" placeholder:"ORIGIN"`

	// TLS serves HTTPS. ALPN is set to HTTP/1.1. Nil serves plain HTTP.
	TLS *tls.Config `kong:"-"`

	// UpstreamTLS has the authorities of upstreams with https. Nil: those of the system.
	UpstreamTLS *tls.Config `kong:"-"`

	// BanRule says when, and for how long, keys that ignore their refusals are banned. The zero
	// rule bans no key.
	BanRule ban.Rule `kong:"-"`

	// UpstreamConnsMax is how many requests one upstream gets at a time. Default: 512.
	UpstreamConnsMax int `kong:"-"`

	// UpstreamDialTimeout is how long a new connection to an upstream may take, with the handshake
	// of TLS. Default: 1 s.
	UpstreamDialTimeout time.Duration `kong:"-"`

	// UpstreamIdleTimeout is how long an unused connection to an upstream is kept. Default: 30 s.
	//
	// Danger: if the upstream closes unused connections earlier, a POST can be sent on a connection
	// that is just being closed.
	UpstreamIdleTimeout time.Duration `kong:"-"`

	// WriteTimeout limits the time in which a client must read a response. Default: 5 s.
	WriteTimeout time.Duration `kong:"-"`

	// TargetBytesMax and HeaderBytesMax bound the head of a request. Default: 8 KiB and 16 KiB.
	TargetBytesMax, HeaderBytesMax int `kong:"-"`

	// HeadsBytesMax bounds the memory for heads that do not fit a connection's own buffer of 512
	// bytes and are still arriving. Above it, each further head closes the connection whose head
	// has been arriving for longest. Default: 64 MiB.
	HeadsBytesMax int `kong:"-"`
}

// Source implements service.Described.
func (*Config) Source() string { return source }

// setDefaults fills in the defaults of fields that are zero.
func (c *Config) setDefaults() {
	c.KeyPrefix = cmp.Or(c.KeyPrefix, apikey.DefaultPrefix)
	c.UpstreamConnsMax = cmp.Or(c.UpstreamConnsMax, upstreamConnsMax)
	c.UpstreamDialTimeout = cmp.Or(c.UpstreamDialTimeout, time.Second)
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

	// upstreamHealthTimeout is for a check. It is far below UpstreamTimeout, so that a check
	// notices an upstream that hangs before requests do.
	upstreamHealthTimeout = time.Second

	fieldsMax     = 100  // of a request
	bodyStepBytes = 1024 // how much memory a body gets before its first byte has arrived
)

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
	ofUpstreams := len(c.Upstreams) * cmp.Or(c.UpstreamConnsMax, upstreamConnsMax)
	return c.ConnectionsMax + front.RefusedMax + front.LingeringMax + ofUpstreams
}

// http returns the settings of package http1.
func (c *Config) http() http1.Settings {
	s := http1.Settings{
		Limits: http1.Limits{
			TargetBytesMax: c.TargetBytesMax,
			FieldBytesMax:  c.HeaderBytesMax,
			FieldsMax:      fieldsMax,
			BodyBytesMax:   c.BodyBytesMax,
			BodyStepBytes:  bodyStepBytes,
			Bodies:         http1.NewBudget(c.BodiesBytesMax),
			Heads:          http1.NewBudget(c.HeadsBytesMax),
		},
		Timeouts: http1.Timeouts{Read: c.ReadTimeout, Write: c.WriteTimeout, Idle: c.IdleTimeout},
	}
	s.Buffers = http1.NewBuffers(&s.Limits)
	return s
}
