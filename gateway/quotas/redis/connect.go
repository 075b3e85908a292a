package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"petgate/shared/socket"
)

// connectionsMax is far above the number in use: one for the batch under way, and some for the
// guard and for operators. go-redis counts failed dials: when their number reaches the pool size,
// here after a quarter of an hour, it dials only once a second, which delays a recovery.
const connectionsMax = 1 << 14

// redirectsMax is how often a call follows a cluster's redirections. A call that was redirected was
// not executed, so it is not charged twice. go-redis would also repeat a call whose connection
// broke. The type of these calls forbids that (ZeroCopyStringCmd.NoRetry), because a call without
// an answer may have charged. DecideBatch repeats it under its number.
const redirectsMax = 3

// sentinelScheme begins the URL of servers that Sentinel watches.
const sentinelScheme = "redis+sentinel://"

// sentinelTimeout is how long a Sentinel may be silent before another one is asked.
const sentinelTimeout = 500 * time.Millisecond

// CheckURLs returns an error if Open would refuse the URLs. It connects to nothing, and the error
// contains no password.
func CheckURLs(urls string) error {
	client, err := connect(urls, time.Second)
	if err != nil {
		return err
	}
	return client.Close()
}

// connect returns a client that never repeats a call by itself. Its connections enforce the budget.
func connect(urls string, budget time.Duration) (redis.UniversalClient, error) {
	if strings.HasPrefix(urls, sentinelScheme) {
		return connectBySentinel(urls, budget)
	}
	var addrs []string
	var first *redis.Options
	for _, text := range strings.Split(urls, ",") {
		at, err := url.Parse(strings.TrimSpace(text))
		isTCP := err == nil && (at.Scheme == "redis" || at.Scheme == "rediss") && at.Host != ""
		isSocket := err == nil && at.Scheme == "unix" && at.Host == ""
		var options *redis.Options
		if isTCP || isSocket {
			options, err = redis.ParseURL(at.String())
		}
		if err != nil || options == nil {
			// err itself is left out: it may contain the URL with the password.
			return nil, fmt.Errorf("number %d is not like redis://[user:password@]host:port[/db] or rediss://…, "+
				"nor like unix://[user:password@]/path[?db=N], "+
				"nor like redis+sentinel://[:password@]host:port,host:port/master-name[/db]", len(addrs)+1)
		}
		if first == nil {
			first = options
		}
		addrs = append(addrs, options.Addr)
		if len(addrs) > 1 && (options.Network == "unix" || first.Network == "unix") {
			return nil, fmt.Errorf("number %d makes it a Redis Cluster, whose nodes name each other by host and port: "+
				"name a Unix socket alone", len(addrs))
		}
	}
	dialer := &dialer{budget: budget, tls: first.TLSConfig}
	if len(addrs) > 1 {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:                      addrs,
			Dialer:                     dialer.dial,
			Username:                   first.Username,
			Password:                   first.Password,
			TLSConfig:                  first.TLSConfig,
			Protocol:                   2,
			DisableIdentity:            true,
			MaxRetries:                 -1,
			MaxRedirects:               redirectsMax,
			DialerRetries:              1,
			ClusterStateReloadInterval: time.Second,
			DialTimeout:                dialTimeout,
			PoolSize:                   connectionsMax,
			MaintNotificationsConfig:   noNotifications(),
		}), nil
	}
	first.Dialer = dialer.dial
	first.Protocol = 2
	first.DisableIdentity = true
	first.MaxRetries = -1
	first.DialerRetries = 1
	first.DialTimeout = dialTimeout
	first.PoolSize = connectionsMax
	first.MaintNotificationsConfig = noNotifications()
	return redis.NewClient(first), nil
}

// connectBySentinel is connect for
// redis+sentinel://[:password@]host:port,host:port/master-name[/db].
func connectBySentinel(text string, budget time.Duration) (redis.UniversalClient, error) {
	wrong := errors.New("it is not like redis+sentinel://[:password@]host:port,host:port/master-name[/db]")
	rest := strings.TrimPrefix(text, sentinelScheme)
	o := &redis.FailoverOptions{
		Protocol:        2,
		DisableIdentity: true,
		MaxRetries:      -1,
		DialerRetries:   1,
		PoolSize:        connectionsMax,
		DialTimeout:     budget,
		// Of the Sentinels: the servers' connections have the budget.
		ReadTimeout:  sentinelTimeout,
		WriteTimeout: sentinelTimeout,
	}
	hostsAt := strings.LastIndex(rest, "@") + 1
	user, err := url.Parse("redis://" + rest[:hostsAt])
	if err != nil {
		return nil, wrong // err itself is left out: it may contain the password
	}
	o.Username = user.User.Username()
	o.Password, _ = user.User.Password()
	hosts, path, _ := strings.Cut(rest[hostsAt:], "/")
	name, db, hasDB := strings.Cut(path, "/")
	o.MasterName = name
	if hasDB {
		if o.DB, err = strconv.Atoi(db); err != nil {
			return nil, wrong
		}
	}
	for _, addr := range strings.Split(hosts, ",") {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, wrong
		}
		o.SentinelAddrs = append(o.SentinelAddrs, addr)
	}
	if name == "" {
		return nil, wrong
	}
	client := redis.NewFailoverClient(o)
	client.AddHook(patient{budget: budget})
	return client, nil
}

// patient makes the connections to the servers that Sentinel names patient. Those to the Sentinels
// themselves are not: one of them is silent until a fail-over.
type patient struct {
	hooked
	budget time.Duration
}

func (h patient) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err} // also if no Sentinel answers
		}
		return &patientConn{Conn: socket.New(c), budget: h.budget}, nil
	}
}

// hooked is a hook that changes nothing.
type hooked struct{}

func (hooked) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (hooked) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (hooked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

const (
	// dialTimeout is far above any budget: the dialer itself ends a dial.
	dialTimeout = time.Minute
	// dialsMax bounds how often a dial is repeated because this process got no CPU time during it.
	dialsMax = 5
)

// dialer makes go-redis's connections.
type dialer struct {
	budget time.Duration
	tls    *tls.Config
}

// dial connects within the budget. If this process got no CPU time meanwhile, dial tries again:
// such a timeout does not show that Redis is slow.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for n := 1; ; n++ {
		began := time.Now()
		c, err := (&net.Dialer{Timeout: d.budget}).DialContext(ctx, network, addr)
		if err == nil {
			return d.prepare(ctx, &patientConn{Conn: socket.New(c), budget: d.budget})
		}
		if !isTimeout(err) || time.Since(began) < d.budget+d.budget/stepsPerBudget || n == dialsMax {
			return nil, err
		}
	}
}

func (d *dialer) prepare(ctx context.Context, c *patientConn) (net.Conn, error) {
	if d.tls == nil {
		return c, nil
	}
	secure := tls.Client(c, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(&net.OpError{Op: "dial", Net: "tcp", Addr: c.RemoteAddr(), Err: err}, c.Close())
	}
	return secure, nil
}

// noNotifications saves a round trip in the handshake, which would be a part of the first request's
// budget.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// go-redis prints every failed dial to standard error. The gateway logs one line for an outage
// instead.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
