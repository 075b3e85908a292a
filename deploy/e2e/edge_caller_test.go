package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"petgate/shared/database"
	"petgate/shared/testkit/fleet"
)

// replyWithin bounds one exchange: longer than any timeout of the product.
const replyWithin = 30 * time.Second

// caller is a client with one connection, which it makes when it needs one.
//
// Not net/http's: that one repeats requests on connections which turn out to be closed, and so hides what is looked for.
type caller struct {
	address string
	from    string      // the address to call from; empty is any
	tls     *tls.Config // nil is plain
	conn    net.Conn
	in      *bufio.Reader
}

// reply is an answer that has been read to its end.
type reply struct {
	*http.Response
	body string
}

func call(p *fleet.Program) *caller { return &caller{address: hostPort(p.URL)} }

func hostPort(url string) string { return strings.TrimPrefix(url, "http://") }

func (c *caller) connect() error {
	if c.conn != nil {
		return nil
	}
	dialer := &net.Dialer{Timeout: replyWithin}
	if c.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.from)}
	}
	conn, err := dialer.Dial("tcp", c.address)
	if err != nil {
		return err
	}
	if c.tls != nil {
		conn = tls.Client(conn, c.tls)
	}
	c.conn, c.in = conn, bufio.NewReader(conn)
	return nil
}

// do sends a request and reads its answer. The connection stays unless the answer says otherwise.
func (c *caller) do(request string) (reply, error) {
	if err := c.send(request); err != nil {
		return reply{}, err
	}
	return c.read()
}

func (c *caller) send(request string) error {
	if err := c.connect(); err != nil {
		return err
	}
	_ = c.conn.SetDeadline(time.Now().Add(replyWithin))
	if _, err := io.WriteString(c.conn, request); err != nil {
		c.close()
		return err
	}
	return nil
}

func (c *caller) read() (reply, error) {
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.close()
		return reply{}, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.Close {
		c.close()
	}
	return reply{response, string(body)}, err
}

// must is do where nothing but an answer will do.
func (c *caller) must(t testing.TB, request string) reply {
	t.Helper()
	got, err := c.do(request)
	if err != nil {
		t.Fatalf("no answer from %s: %v", c.address, err)
	}
	return got
}

func (c *caller) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn, c.in = nil, nil
}

// getPets and postPet are the requests of a client with a key.
func getPets(token string, fields ...string) string {
	return "GET /v1/pets?limit=1 HTTP/1.1\r\n" + head(token, fields) + "\r\n"
}

func postPet(token, name string, fields ...string) string {
	body := fmt.Sprintf(`{"name":%q,"categoryId":1}`, name)
	fields = append(fields, "Content-Type: application/json", "Content-Length: "+strconv.Itoa(len(body)))
	return "POST /v1/pets HTTP/1.1\r\n" + head(token, fields) + "\r\n" + body
}

func head(token string, fields []string) string {
	fields = append([]string{"Host: pets.example", "Authorization: Bearer " + token}, fields...)
	return strings.Join(fields, "\r\n") + "\r\n"
}

// metric returns the sum of a metric of a program, over the labels that have the given text in them.
func metric(t testing.TB, p *fleet.Program, name, labels string) float64 {
	t.Helper()
	response, err := http.Get(p.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	sum, found := 0.0, false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if rest, ok := strings.CutPrefix(series, name); !ok || rest != "" && rest[0] != '{' || !strings.Contains(rest, labels) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		sum, found = sum+number, true
	}
	if !found && labels == "" && !strings.HasSuffix(name, "_total") {
		t.Fatalf("%s has no metric %s", p.Admin, name)
	}
	return sum
}

// petRows returns how often each name is stored.
func petRows(t testing.TB, f *fleet.Fleet) map[string]int {
	t.Helper()
	db := petDatabase(t, f)
	rows, err := db.Query(`SELECT name, count(*) FROM pets GROUP BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	counts := make(map[string]int)
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		counts[name] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}

func petDatabase(t testing.TB, f *fleet.Fleet) *database.DB {
	t.Helper()
	db, err := database.Open(context.Background(), f.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
