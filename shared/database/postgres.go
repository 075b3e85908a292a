package database

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"petgate/shared/socket"
)

const (
	statementTimeout = 5 * time.Second
	connectTimeout   = 3 * time.Second

	// An abandoned transaction would hold the writers' lock without limit.
	idleInTransactionTimeout = 10 * time.Second

	// How much longer than its statement timeout a server may be silent. A working server reports
	// the timeout earlier.
	silenceMargin = time.Second
)

func openPostgres(rawURL string, patient bool) (*DB, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The message leaves out err, because err quotes the part that did not parse, which may
		// contain a password.
		return nil, fmt.Errorf("%w: percent-encode special characters in the user name and password", ErrURL)
	}
	q := u.Query()
	for name, value := range map[string]string{
		"connect_timeout":                     strconv.Itoa(int(connectTimeout.Seconds())),
		"statement_timeout":                   strconv.FormatInt(statementTimeout.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": strconv.FormatInt(idleInTransactionTimeout.Milliseconds(), 10),
		"fallback_application_name":           "petgate",
		// Transactions that wait for one another's rows and locks would fail in any stricter one,
		// which a database may have by default.
		"default_transaction_isolation": "read committed",
		// Statements of requests find rows by an index, so a new plan for each execution of a
		// prepared statement is not needed.
		"plan_cache_mode": "force_generic_plan",
		// One round trip for a statement that is not prepared, not two.
		"binary_parameters": "yes",
	} {
		if !q.Has(name) {
			q.Set(name, value)
		}
	}
	if patient {
		q.Set("statement_timeout", "0")
		q.Set("idle_in_transaction_session_timeout", "0")
	}
	limit, err := strconv.ParseUint(q.Get("statement_timeout"), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%w: statement_timeout is a number of milliseconds", ErrURL)
	}
	var silence time.Duration
	if limit > 0 {
		silence = time.Duration(limit)*time.Millisecond + silenceMargin
	}
	u.RawQuery = q.Encode()
	d := &DB{dialect: Postgres, dsn: u.String()}
	c, err := pq.NewConnector(d.dsn)
	if err != nil {
		return nil, fmt.Errorf("%w: lib/pq refuses a parameter of %s", ErrURL, Redact(rawURL))
	}
	c.Dialer(&dialer{ctx: context.Background(), silence: silence})
	pool := sql.OpenDB(connector{c, d})
	pool.SetMaxOpenConns(connectionsMax)
	pool.SetMaxIdleConns(connectionsMax)
	pool.SetConnMaxLifetime(connectionLifetime)
	d.DB = sqlx.NewDb(pool, "postgres")
	return d, nil
}

// dialer opens connections that time out if the server is silent. A statement_timeout does not work
// if the server is frozen or the network drops everything.
type dialer struct {
	ctx     context.Context // when it ends, no connections are opened, and those being opened fail
	silence time.Duration   // 0: no limit
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d *dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &idleTimeoutConn{Conn: socket.New(c), silence: d.silence}
	conn.forget = context.AfterFunc(d.ctx, func() { c.Close() })
	return conn, nil
}

// idleTimeoutConn fails a read or write that makes no progress for longer than silence, and closes
// when its dialer's context ends. One goroutine reads at a time.
type idleTimeoutConn struct {
	*socket.Conn
	silence time.Duration
	isTimed bool       // lib/pq has set a deadline itself, while it connects
	writing sync.Mutex // lib/pq's listener may close while it writes
	forget  func() bool
}

func (c *idleTimeoutConn) SetDeadline(t time.Time) error {
	c.isTimed = !t.IsZero()
	return c.Conn.SetDeadline(t)
}

func (c *idleTimeoutConn) Read(p []byte) (int, error) {
	if err := c.limit(c.SetReadDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *idleTimeoutConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.limit(c.SetWriteDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// limit sets the deadline of an operation that begins now.
func (c *idleTimeoutConn) limit(set func(time.Time) error) error {
	if c.silence == 0 || c.isTimed {
		return nil
	}
	return set(time.Now().Add(c.silence))
}

func (c *idleTimeoutConn) Close() error {
	c.forget()
	return c.Conn.Close()
}
