package app

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"petgate/gateway/edge"
	"petgate/gateway/quotas"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/database"
	"petgate/shared/service"
)

// Config are the settings of one gateway.
type Config struct {
	DatabaseURL service.Secret `env:"DATABASE_URL" default:"sqlite:var/petgate.db" help:"Where tenants, plans, keys and bans are: postgres://… or sqlite:PATH."`
	RedisURL    service.Secret `env:"REDIS_URL" help:"Where gateways share quotas: redis://…, several separated by commas are one Redis Cluster. Empty keeps quotas in this process, which is exact for one gateway only."`
	RedisPrefix string         `env:"GATEWAY_REDIS_PREFIX" default:"petgate:" help:"Begins every name in Redis; the same for all gateways that share quotas."`

	Listen      string `env:"GATEWAY_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS" help:"Public address."`
	AdminListen string `env:"GATEWAY_ADMIN_LISTEN" default:"127.0.0.1:9090" placeholder:"ADDRESS" help:"Private address: /healthz, /readyz, /metrics, /debug/pprof, /quota/TENANT. Do not publish it."`
	TLSCert     string `name:"tls-cert" env:"GATEWAY_TLS_CERT" placeholder:"PATH" help:"PEM certificate chain of the public address, which then speaks TLS. A changed file is read again."`
	TLSKey      string `name:"tls-key" env:"GATEWAY_TLS_KEY" placeholder:"PATH" help:"PEM key of that certificate."`

	ID          string `env:"GATEWAY_ID" help:"Name of this gateway, the same after a restart and unlike any other's. Default: host name and listen address."`
	Environment string `env:"GATEWAY_ENVIRONMENT" default:"live" placeholder:"live|test" help:"Whose keys are accepted."`
	Snapshot    string `env:"GATEWAY_SNAPSHOT" default:"var/gateway.snapshot" placeholder:"PATH" help:"File from which a restart serves while the database is down. Empty keeps none."`

	Upstreams       []string       `env:"GATEWAY_UPSTREAMS" default:"http://127.0.0.1:8081" placeholder:"URL" help:"Where requests are forwarded: http://host:port or unix:/path, separated by commas."`
	UpstreamSecret  service.Secret `env:"GATEWAY_UPSTREAM_SECRET" help:"Sent to upstreams, which can refuse whoever does not know it."`
	UpstreamTimeout time.Duration  `env:"GATEWAY_UPSTREAM_TIMEOUT" default:"10s" help:"For a whole exchange with an upstream."`

	TrustedProxies []netip.Prefix `env:"GATEWAY_TRUSTED_PROXIES" placeholder:"CIDR" help:"Proxies whose X-Forwarded-For is believed. Every client within can claim any address."`
	BodyBytesMax   int            `env:"GATEWAY_BODY_BYTES_MAX" default:"1048576" placeholder:"N" help:"Longest request body."`
	ReadTimeout    time.Duration  `env:"GATEWAY_READ_TIMEOUT" default:"4s" help:"For a request's head, and again for its body: ends clients that send slowly on purpose."`
	ConcurrencyMax int            `env:"GATEWAY_CONCURRENCY_MAX" default:"4096" placeholder:"N" help:"Requests served at a time; what exceeds it is answered 503."`
	ConnectionsMax int            `env:"GATEWAY_CONNECTIONS_MAX" default:"32768" placeholder:"N" help:"Connections held; each needs a file descriptor."`

	DirectoryMaxAge time.Duration `env:"GATEWAY_DIRECTORY_MAX_AGE" default:"0s" help:"Answer 503 when the database was last read longer ago. 0 serves from memory through any outage, in which a revocation does not arrive."`
	LimitsOnOutage  quotas.Outage `env:"GATEWAY_LIMITS_ON_OUTAGE" default:"share" placeholder:"share|refuse" help:"While Redis does not answer: admit a share of each limit, or nothing."`
	AuthFailures    int           `name:"auth-failures-per-minute" env:"GATEWAY_AUTH_FAILURES_PER_MINUTE" default:"120" placeholder:"N" help:"Unknown keys that an address may try; 0 is unlimited."`
	BanAfter        int           `env:"GATEWAY_BAN_AFTER" default:"30" placeholder:"N" help:"Strikes within a minute that ban a key; 0 bans none."`
	BanFor          time.Duration `env:"GATEWAY_BAN_FOR" default:"1m" help:"Length of a first ban; each further one within a day is twice as long."`
	BanMax          time.Duration `env:"GATEWAY_BAN_MAX" default:"1h" help:"Longest ban."`

	AccessLog bool `env:"GATEWAY_ACCESS_LOG" default:"true" negatable:"" help:"Write a JSON line for each request to standard output."`

	service.Settings `embed:"" envprefix:"GATEWAY_"`
}

// Problems names everything that is wrong with well-formed values.
func (c *Config) Problems() []string {
	problems := c.Settings.Problems()
	complain := func(wrong bool, problem string) {
		if wrong {
			problems = append(problems, problem)
		}
	}
	complain(c.DirectoryMaxAge < 0, "--directory-max-age must not be negative")
	complain(c.AuthFailures < 0, "--auth-failures-per-minute must not be negative")
	complain(c.BanAfter < 0 || c.BanAfter > 65535, "--ban-after must be 0 to 65535")
	complain(c.BanFor <= 0 || c.BanMax < c.BanFor, "--ban-for must be positive and --ban-max no shorter")
	complain(!isAddress(c.Listen), fmt.Sprintf("--listen: %q must be host:port", c.Listen))
	complain(!isAddress(c.AdminListen), fmt.Sprintf("--admin-listen: %q must be host:port", c.AdminListen))
	complain(c.UpstreamTimeout <= 0, "--upstream-timeout must be positive")
	complain(c.ReadTimeout <= 0, "--read-timeout must be positive")
	complain(c.BodyBytesMax <= 0, "--body-bytes-max must be positive")
	complain(c.ConcurrencyMax <= 0, "--concurrency-max must be positive")
	complain(c.ConnectionsMax <= 0, "--connections-max must be positive")
	db, err := database.Open(string(c.DatabaseURL)) // connects to nothing
	if err == nil {
		err = db.Close()
	}
	complain(errors.Is(err, database.ErrURL), fmt.Sprintf("DATABASE_URL: %v", err))
	for n, part := range strings.Split(string(c.RedisURL), ",") {
		complain(c.RedisURL != "" && !isRedis(part), fmt.Sprintf("REDIS_URL: number %d is not redis://… or rediss://…", n+1))
	}
	_, err = apikey.ParseEnvironment(c.Environment)
	complain(err != nil, fmt.Sprintf("--environment: %v", err))
	cfg, err := c.edge(time.Now, slog.New(slog.DiscardHandler)) // complete but for a certificate that is wrong
	complain(err != nil, fmt.Sprintf("--tls-cert, --tls-key: %v", err))
	check := func(setting string, cfg edge.Config) {
		operations, err := api.Operations()
		if err == nil {
			_, err = edge.New(cfg, edge.Deps{Operations: operations, Metrics: prometheus.NewRegistry()})
		}
		if err != nil {
			for problem := range strings.SplitSeq(err.Error(), "\n") { // joined errors
				problems = append(problems, setting+": "+problem)
			}
		}
	}
	check("--upstreams", edge.Config{Upstreams: cfg.Upstreams})
	check("GATEWAY_UPSTREAM_SECRET", edge.Config{Upstreams: []string{"unix:any"}, UpstreamSecret: cfg.UpstreamSecret})
	return problems
}

func isAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != ""
}

func isRedis(text string) bool {
	u, err := url.Parse(strings.TrimSpace(text))
	return err == nil && (u.Scheme == "redis" || u.Scheme == "rediss") && u.Host != ""
}

// quotas says where quotas are kept, without the credentials of the URLs.
func (c *Config) quotas() []string {
	var places []string
	for part := range strings.SplitSeq(string(c.RedisURL), ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err == nil && isRedis(part) {
			places = append(places, u.Scheme+"://"+u.Host+u.Path)
		}
	}
	if places == nil {
		return []string{"memory"}
	}
	return places
}

// id is how this gateway is known to the database and to operators.
func (c *Config) id() string {
	host, err := os.Hostname()
	if err != nil {
		host = "gateway"
	}
	return cmp.Or(c.ID, host+"-"+c.Listen)
}

// edge is what the settings say of the public port.
func (c *Config) edge(clock func() time.Time, log *slog.Logger) (edge.Config, error) {
	environment, _ := apikey.ParseEnvironment(c.Environment) // Problems has looked at it
	rule := ban.Product
	rule.After, rule.For, rule.Max = c.BanAfter, c.BanFor, c.BanMax
	cfg := edge.Config{
		Environment:     environment,
		TrustedProxies:  c.TrustedProxies,
		Upstreams:       c.Upstreams,
		UpstreamSecret:  string(c.UpstreamSecret),
		UpstreamTimeout: c.UpstreamTimeout,
		BanRule:         rule,
		ReadTimeout:     c.ReadTimeout,
		BodyBytesMax:    c.BodyBytesMax,
		ConcurrencyMax:  c.ConcurrencyMax,
		ConnectionsMax:  c.ConnectionsMax,
	}
	if c.TLSCert == "" && c.TLSKey == "" {
		return cfg, nil
	}
	certificate, err := loadCertificate(c.TLSCert, c.TLSKey, clock, log)
	if err != nil {
		return cfg, err
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.get}
	return cfg, nil
}
