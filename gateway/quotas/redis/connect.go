package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"petgate/shared/socket"
)

// connectionsMax is far above what is used: a batch at a time, and what the guard and operators ask. go-redis counts
// failed dials up to it, and beyond it only dials once a second, which would make a recovery wait.
const connectionsMax = 1 << 14

// connect makes a client that fails within the budget and never repeats a decision: what timed out may have charged.
// (Of a cluster it follows redirections, as what was redirected was not executed.)
func connect(urls string, budget time.Duration) (redis.UniversalClient, error) {
	var addrs []string
	var first *redis.Options
	for _, url := range strings.Split(urls, ",") {
		options, err := redis.ParseURL(strings.TrimSpace(url))
		if err != nil {
			// Not err itself: it may quote the URL, and with it the password.
			return nil, fmt.Errorf("redis: Redis URL %d of %d is not like redis://[user:password@]host:port[/db] "+
				"or rediss://…", len(addrs)+1, strings.Count(urls, ",")+1)
		}
		if first == nil {
			first = options
		}
		addrs = append(addrs, options.Addr)
	}
	if len(addrs) > 1 {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, Dialer: dialerOf(first, budget), Username: first.Username, Password: first.Password, TLSConfig: first.TLSConfig,
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: budget, ReadTimeout: budget, WriteTimeout: budget, PoolTimeout: budget,
			PoolSize: connectionsMax, MaintNotificationsConfig: noNotifications(),
		}), nil
	}
	first.Protocol, first.DisableIdentity, first.MaxRetries, first.DialerRetries = 2, true, -1, 1
	first.ContextTimeoutEnabled, first.Dialer = true, dialerOf(first, budget)
	first.DialTimeout, first.ReadTimeout, first.WriteTimeout, first.PoolTimeout = budget, budget, budget, budget
	first.PoolSize, first.MaintNotificationsConfig = connectionsMax, noNotifications()
	return redis.NewClient(first), nil
}

// dialer is how go-redis is told to make its connections.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialerOf is nil for TLS, where go-redis's own dialer does.
func dialerOf(o *redis.Options, timeout time.Duration) dialer {
	if o.TLSConfig != nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return pooledConn{socket.New(c)}, nil
	}
}

// pooledConn is a connection in go-redis's pool. Each time that it is taken out, go-redis asks for the socket beneath
// (syscall.Conn) and peeks at it, to see whether Redis has closed it meanwhile. That would be the only announced call of a
// batch: so Check looks instead when the socket is asked for, and go-redis's own look finds nothing.
type pooledConn struct{ *socket.Conn }

func (c pooledConn) SyscallConn() (syscall.RawConn, error) { return checked{}, c.Check() }

// checked is a socket on which there is nothing to read. It is good for nothing else.
type checked struct{}

func (checked) Read(func(uintptr) bool) error  { return nil }
func (checked) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
func (checked) Control(func(uintptr)) error    { return errors.ErrUnsupported }

// Each step of a handshake costs a round trip of the first request's budget.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// go-redis prints every failed dial to standard error: an outage is one line of ours instead.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
