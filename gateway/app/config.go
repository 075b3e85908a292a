package app

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"petgate/gateway/answers"
	"petgate/gateway/edge"
	"petgate/gateway/http1"
	"petgate/gateway/quotas"
	"petgate/gateway/quotas/redis"
	"petgate/gateway/upstream"
	"petgate/shared/api"
	"petgate/shared/core/apikey"
	"petgate/shared/core/ban"
	"petgate/shared/database"
	"petgate/shared/keystore/sessions"
	"petgate/shared/service"
	"petgate/shared/trace"
)

//go:embed config.go
var source string

// Config are the settings of one gateway.
type Config struct {
	// The database of tenants, plans, keys and bans: postgres://… or sqlite:PATH.
	DatabaseURL service.Secret `env:"DATABASE_URL" default:"sqlite:var/petgate.db"`

	// The Redis in which gateways share quotas: redis://…, or unix:///path on one host; nodes of
	// one Redis Cluster, separated by commas; or
	// redis+sentinel://[:password@]host:port,host:port/master-name[/db], where the password is that
	// of Redis. Empty: quotas are kept in this process, which is correct for one gateway only.
	RedisURL service.Secret `env:"REDIS_URL"`

	// Prefix of all names in Redis. Gateways that share quotas need the same prefix.
	RedisPrefix string `env:"GATEWAY_REDIS_PREFIX" default:"petgate:"`

	// Connections to Postgres; one more listens for changes, and up to two more serve GET
	// /v1/usage.
	DatabaseConnections int `env:"GATEWAY_DATABASE_CONNECTIONS" default:"3" placeholder:"N"`

	// Public address.
	Listen string `env:"GATEWAY_LISTEN" default:"127.0.0.1:8080" placeholder:"ADDRESS"`

	// Private address: /healthz, /readyz, /metrics, /debug/pprof, /quota/TENANT, /about, /live. Do
	// not publish it.
	AdminListen string `env:"GATEWAY_ADMIN_LISTEN" default:"127.0.0.1:9090" placeholder:"ADDRESS"`

	// PEM certificate chain. With it, the public address uses TLS. A changed file is read again.
	TLSCert string `name:"tls-cert" env:"GATEWAY_TLS_CERT" placeholder:"PATH"`

	// PEM key of that certificate.
	TLSKey string `name:"tls-key" env:"GATEWAY_TLS_KEY" placeholder:"PATH"`

	// Name that clients use. A certificate without it is reported.
	TLSName string `name:"tls-name" env:"GATEWAY_TLS_NAME" placeholder:"HOST"`

	// Name of this gateway: unique, and the same after a restart. Default: host name and listen
	// address.
	ID string `env:"GATEWAY_ID"`

	// File from which a restarted gateway serves while the database is unavailable; .outage next to
	// it keeps what Redis lacks, and .usage what the database lacks. Empty: no files.
	Snapshot string `env:"GATEWAY_SNAPSHOT" default:"var/gateway.snapshot" placeholder:"PATH"`

	// OpenAPI document of the API to serve: 3.0 or 3.1, in YAML or JSON. SIGHUP reads it again.
	// Default: the pet service's.
	API string `name:"api" env:"GATEWAY_API" placeholder:"FILE"`

	// Prefix of the gateway's own paths, such as /gateway for /gateway/quota, /gateway/usage,
	// /gateway/docs and /gateway/openapi.yaml. Default: empty, for /v1/quota, /v1/usage, /docs and
	// so on.
	OwnPrefix string `env:"GATEWAY_OWN_PREFIX" placeholder:"PATH"`

	edge.Config

	// PEM certificates of the authorities of upstreams with https. Default: those of the system.
	UpstreamCA string `name:"upstream-ca" env:"GATEWAY_UPSTREAM_CA" placeholder:"PATH"`

	// Maximum age of the keys in memory. If the database has not been read for longer, requests get
	// 503. 0: no maximum.
	DirectoryMaxAge time.Duration `env:"GATEWAY_DIRECTORY_MAX_AGE" default:"0s"`

	// While Redis does not answer: admit a share of each limit, or nothing.
	LimitsOnOutage quotas.Outage `env:"GATEWAY_LIMITS_ON_OUTAGE" default:"share" placeholder:"share|refuse"`

	// How many unknown keys a client address may try per minute. 0: unlimited.
	AuthFailuresPerMinute int `env:"GATEWAY_AUTH_FAILURES_PER_MINUTE" default:"120" placeholder:"N"`

	// Strikes within a minute after which a key is banned. 0: no bans.
	BanAfter int `env:"GATEWAY_BAN_AFTER" default:"30" placeholder:"N"`

	// Length of a first ban. Each further ban within a day is twice as long.
	BanFor time.Duration `env:"GATEWAY_BAN_FOR" default:"1m"`

	// Longest ban.
	BanMax time.Duration `env:"GATEWAY_BAN_MAX" default:"1h"`

	// Serve the documentation of the API at /docs, without a key.
	Docs bool `env:"GATEWAY_DOCS" default:"true" negatable:""`

	// Title of the documentation. Default: that of the OpenAPI document.
	DocsTitle string `env:"GATEWAY_DOCS_TITLE"`

	// Serve the operators' console at /console/ on the admin port.
	Console bool `env:"GATEWAY_CONSOLE" negatable:""`

	// Field by which an identity proxy names the person who uses the console, such as
	// X-Forwarded-User. The proxy must remove it from what browsers send.
	ConsoleUserHeader string `env:"GATEWAY_CONSOLE_USER_HEADER" placeholder:"NAME"`

	// Field with the groups of that person, separated by commas.
	ConsoleGroupsHeader string `env:"GATEWAY_CONSOLE_GROUPS_HEADER" default:"X-Forwarded-Groups" placeholder:"NAME"`

	// What the groups may do: read, keys (and bans) or admin, separated by commas.
	ConsoleGroups roles `env:"GATEWAY_CONSOLE_GROUPS" placeholder:"GROUP=ROLE"`

	// Addresses of the identity proxies. Other clients cannot name a person.
	ConsoleProxies []netip.Prefix `env:"GATEWAY_CONSOLE_PROXIES" placeholder:"CIDR"`

	// Serve the operators' API at /api/v1/ on the admin port, which needs TLS unless its address is
	// a loopback one.
	OperatorsAPI bool `name:"operators-api" env:"GATEWAY_OPERATORS_API" negatable:""`

	// The database with the rights of keyadmin, for the console and the operators' API. Default:
	// DATABASE_URL, whose role then needs these rights.
	ConsoleDatabaseURL service.Secret `env:"GATEWAY_CONSOLE_DATABASE_URL"`

	// Write a line for each request to standard output.
	AccessLog bool `env:"GATEWAY_ACCESS_LOG" default:"true" negatable:""`

	Traces           trace.Settings `embed:""`
	service.Settings `embed:"" envprefix:"GATEWAY_"`

	document *api.API // that API names
}

// Source implements service.Described.
func (*Config) Source() string { return source }

// Addresses returns the addresses of both ports.
func (c *Config) Addresses() (public, admin string) { return c.Listen, c.AdminListen }

// Written returns the path of the snapshot. The other files are next to it.
func (c *Config) Written() []string { return []string{c.Snapshot} }

// headerNames matches the name of a field, or none, and another one after a space.
var headerNames = regexp.MustCompile(`^[A-Za-z0-9-]* [A-Za-z0-9-]+$`)

// maxAgeMin leaves room for one read of the database that comes late. A gateway with a shorter
// maximum age would refuse requests although nothing is wrong.
const maxAgeMin = 2 * time.Second

// BadSettings checks the values.
func (c *Config) BadSettings() service.BadSettings {
	bad := c.Settings.BadSettings()
	check := func(flag string, err error) { bad.Require(err == nil, flag, "%v", err) }
	for _, one := range []struct {
		flag       string
		isPositive bool
	}{
		{"ban-for", c.BanFor > 0},
		{"upstream-timeout", c.UpstreamTimeout > 0},
		{"read-timeout", c.ReadTimeout > 0},
		{"idle-timeout", c.IdleTimeout > 0},
		{"body-bytes-max", c.BodyBytesMax > 0},
		{"upstream-conns-per-tenant", c.UpstreamConnsPerTenant > 0},
		{"concurrency-max", c.ConcurrencyMax > 0},
		{"connections-max", c.ConnectionsMax > 0},
	} {
		bad.Require(one.isPositive, one.flag, "it must be positive")
	}
	bad.Require(c.DirectoryMaxAge == 0 || c.DirectoryMaxAge >= maxAgeMin, "directory-max-age",
		"use 0, or at least 2s: the database is read once a second")
	bad.Require(c.AuthFailuresPerMinute >= 0, "auth-failures-per-minute", "it must not be negative")
	bad.Require(c.BanAfter >= 0 && c.BanAfter <= 65535, "ban-after", "use 0 to 65535")
	bad.Require(c.BanMax >= c.BanFor, "ban-max", "it must not be shorter than --ban-for")
	bad.RequirePorts(c.Listen, c.AdminListen)
	isPrivate := c.AdminTLS.Cert != "" || service.IsLoopback(c.AdminListen)
	bad.Require(isPrivate || !c.OperatorsAPI, "operators-api", "tokens would cross the network in plain text: "+
		"set --admin-tls-cert and --admin-tls-key, or use a loopback address for --admin-listen")
	if c.UpstreamHealthPath != "" {
		check("upstream-health-path", upstream.CheckPath(c.UpstreamHealthPath))
	}
	part := min(c.BodyBytesMax, http1.PartBytesMax)
	bad.Require(c.BodiesBytesMax >= part, "bodies-bytes-max", "it must be at least %d, the memory for one body", part)
	bad.Require(c.ResponseBytesMax >= 0, "response-bytes-max", "it must not be negative")
	check("database-url", database.CheckURL(string(c.DatabaseURL)))
	bad.Require(c.ConsoleUserHeader == "" || len(c.ConsoleProxies) > 0 && len(c.ConsoleGroups) > 0,
		"console-user-header", "it needs --console-proxies and --console-groups")
	bad.Require(headerNames.MatchString(c.ConsoleUserHeader+" "+c.ConsoleGroupsHeader), "console-user-header",
		"use names of header fields for it and for --console-groups-header, such as X-Forwarded-User")
	if c.ConsoleDatabaseURL != "" {
		check("console-database-url", database.CheckURL(string(c.ConsoleDatabaseURL)))
	}
	bad.Require(c.DatabaseConnections >= 1 && c.DatabaseConnections <= 100, "database-connections", "use 1 to 100")
	if c.RedisURL != "" {
		check("redis-url", redis.CheckURLs(string(c.RedisURL)))
	}
	check("key-prefix", apikey.CheckPrefix(c.KeyPrefix))
	c.requireDocument(&bad)
	bad.RequireCertificate("tls-cert", c.TLSCert, "tls-key", c.TLSKey)
	bad.Require(c.TLSName == "" || c.TLSCert != "", "tls-name", "it needs --tls-cert")
	bad.Require(len(c.Upstreams) > 0, "upstreams", "name at least one")
	before := len(bad)
	for _, url := range c.Upstreams {
		check("upstreams", upstream.CheckURL(url))
	}
	if c.document != nil && len(bad) == before {
		check("upstreams", c.checkServices(c.document))
	}
	if c.UpstreamCA != "" {
		_, err := service.ReadAuthorities(c.UpstreamCA)
		check("upstream-ca", err)
	}
	bad.Require(http1.IsHost([]byte(c.UpstreamHost)), "upstream-host",
		"use keep, upstream or a host name, with a port if needed")
	secret := string(c.UpstreamSecret)
	bad.Require(http1.IsValue([]byte(secret)) && strings.TrimSpace(secret) == secret, "upstream-secret",
		"it has characters that a header field cannot have")
	c.Traces.Check(&bad)
	for _, origin := range c.CORSOrigins {
		check("cors-origins", answers.CheckOrigin(origin))
	}
	return bad
}

// quotas returns where quotas are kept, without the credentials of the URLs.
func (c *Config) quotas() []string {
	urls := string(c.RedisURL)
	switch scheme, rest, _ := strings.Cut(urls, "://"); {
	case urls == "":
		return []string{"memory"}
	case scheme == "redis+sentinel": // one place, whose hosts are separated by commas
		return []string{scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]}
	}
	var places []string
	for part := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err == nil {
			places = append(places, u.Scheme+"://"+u.Host+u.Path)
		}
	}
	return places
}

// gatewayID returns the gateway's name. Hosts of one name need the setting: the second gateway of a
// name does not start.
func (c *Config) gatewayID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "gateway"
	}
	return cmp.Or(c.ID, host+"-"+c.Listen)
}

// outageFile is next to the snapshot; empty if there is no snapshot.
func (c *Config) outageFile() string {
	if c.Snapshot == "" {
		return ""
	}
	return c.Snapshot + ".outage"
}

// edge returns the settings of the public port, without TLS.
func (c *Config) edge() edge.Config {
	cfg := c.Config
	cfg.BanRule = ban.Product
	cfg.BanRule.After, cfg.BanRule.For, cfg.BanRule.Max = c.BanAfter, c.BanFor, c.BanMax
	return cfg
}

// roles says what the people of each group may do.
type roles map[string]sessions.Role

// UnmarshalText reads GROUP=ROLE, separated by commas.
func (r *roles) UnmarshalText(text []byte) error {
	*r = roles{}
	for pair := range strings.SplitSeq(string(text), ",") {
		group, name, _ := strings.Cut(pair, "=")
		var role sessions.Role
		if err := role.UnmarshalText([]byte(name)); err != nil {
			return fmt.Errorf("%q: %w", pair, err)
		}
		(*r)[group] = role
	}
	return nil
}
