package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

var (
	errDown = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	errLate = errors.New("no response")
	errIll  = fmt.Errorf("GET /readyz %w 503", errResponded)
)

// checkedPool returns a pool with n instances that do not exist.
func checkedPool(t *testing.T, log io.Writer, n int) *Pool {
	return newPool(t, log, func(c *Config) {
		for i := range n {
			c.URLs = append(c.URLs, fmt.Sprintf("http://host-%d:80", i))
		}
		c.Check = Check{Path: "/readyz"}
	})
}

// ejected says for each instance whether other instances are preferred.
func (p *Pool) ejected() (all []bool) {
	for _, s := range p.Stats(time.Now()) {
		all = append(all, s.IsEjected)
	}
	return all
}

// What checks of two instances say one after the other, and which are out afterwards.
func TestJudge(t *testing.T) {
	type result struct {
		of  int
		err error
	}
	const lastStays = "the last one stays in"
	f := func(name string, wantLines int, firstIsOut, secondIsOut bool, results ...result) {
		t.Helper()
		var log testkit.Output
		p := checkedPool(t, &log, 2)
		for _, r := range results {
			p.judge(p.hosts[r.of], r.err)
		}
		must.Equal(t, fmt.Sprint(p.ejected()), fmt.Sprint([]bool{firstIsOut, secondIsOut}), "%s: out are", name)
		if n := len(log.Lines()); n != wantLines || n > 0 && !strings.Contains(log.String(), results[0].err.Error()) {
			t.Errorf("%s: %d lines, want %d: %s", name, n, wantLines, log.String())
		}
		var want []string
		for i, isOut := range []bool{firstIsOut, secondIsOut} {
			effect := "it still gets requests, because no other upstream does"
			if isOut {
				effect = "until it succeeds, the upstream gets only requests that no other upstream takes"
			}
			if isOut || i == 1 && name == lastStays {
				s := p.hosts[i].standing
				since := s.since.UTC().Format(time.RFC3339)
				const says = "the check of host-%d:80 fails since %s: %v; %s"
				want = append(want, fmt.Sprintf(says, i, since, s.cause, effect))
			}
		}
		must.Equal(t, strings.Join(p.Problems(), "\n"), strings.Join(want, "\n"), "%s: the problems", name)
	}
	f("all is well", 0, false, false, result{0, nil}, result{1, nil})
	f("a refused connection takes out at once, and is logged once", 1, true, false, result{0, errDown},
		result{0, errDown})
	f("so does a status", 1, true, false, result{0, errIll})
	f("a missing socket does too", 1, true, false, result{0, syscall.ENOENT})
	f("and a bad certificate", 1, true, false, result{0, &tls.CertificateVerificationError{Err: errLate}})
	f("two late responses do not", 0, false, false, result{0, errLate}, result{0, errLate})
	f("a response in time starts the count again", 0, false, false,
		result{0, errLate}, result{0, errLate}, result{0, nil}, result{0, errLate}, result{0, errLate})
	f("three do", 1, true, false, result{0, errLate}, result{0, errLate}, result{0, errLate})
	f("a check brings it back", 2, false, false, result{0, errDown}, result{0, nil})
	f("it stays out while it is late", 1, true, false, result{0, errDown}, result{0, errLate})
	f(lastStays, 2, true, false, result{0, errDown}, result{1, errDown}, result{1, errDown})
	f("the last one leaves when another is back", 4, false, true,
		result{0, errDown}, result{1, errDown}, result{0, nil}, result{1, errDown})
}

// A check readmits no instance that requests have taken out, and requests readmit none that a check
// has taken out.
func TestChecksAndRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := checkedPool(t, io.Discard, 3)
		a, b := p.hosts[0], p.hosts[1]
		want := func(when string, isOut ...bool) {
			t.Helper()
			must.Equal(t, fmt.Sprint(p.ejected()), fmt.Sprint(isOut), "%s: out are", when)
		}
		a.eject()
		p.judge(a, nil)
		want("a check succeeds after requests failed", true, false, false)
		time.Sleep(ejectedFor)
		want("later", false, false, false)

		p.judge(a, errIll)
		a.succeeded() // a response to a request that was in flight
		a.eject()     // it is about to stop
		time.Sleep(2 * ejectedFor)
		p.judge(a, errIll)
		want("requests succeed and fail after a check failed", true, false, false)
		must.Equal(t, time.Since(a.standing.since), 2*ejectedFor, "how long the check has failed")
		p.retries.Add(7)
		const labels = "{service=\"pets\",upstream=\"host-0:80\"} "
		for name, figure := range map[string]string{
			"ejections_total": labels + "2", "ejected": labels + "1", "check_failures_total": labels + "2",
			"retries_total": " 7",
		} {
			name = "petgate_gateway_upstream_" + name
			text := string(must.Get[[]byte](t)(testutil.CollectAndFormat(Pools{"pets": p}, expfmt.TypeTextPlain, name)))
			must.Equal(t, strings.Contains(text, "\n"+name+figure+"\n"), true, "%s is %s in %s", name, figure, text)
		}
		p.judge(a, nil)
		want("a check succeeds after a check failed", false, false, false)

		b.eject()
		p.judge(b, errDown)
		time.Sleep(2 * ejectedFor)
		want("a check fails after requests failed", false, true, false)

		a.eject()
		p.judge(a, errDown)
		p.judge(a, nil)
		want("a check fails and succeeds after requests failed", false, true, false)

		p.judge(a, errDown)
		p.hosts[2].eject()
		for range 20 {
			must.Equal(t, p.pick(0, time.Now().UnixMilli()).address, p.hosts[2].address,
				"the instance that is picked when all are out, two of them by checks")
		}
	})
}

// The checks of an instance follow one another at the interval, give or take a tenth, and end with
// the context.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := checkedPool(t, io.Discard, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Time
		p.hosts[0].watch(ctx, func(context.Context) error {
			at = append(at, time.Now())
			if len(at) == 50 {
				cancel()
			}
			return errDown
		})
		differ := false
		for i := range len(at) - 1 {
			pause := at[i+1].Sub(at[i])
			differ = differ || pause != at[1].Sub(at[0])
			if pause < 900*time.Millisecond || pause > 1100*time.Millisecond {
				t.Errorf("a pause of %v", pause)
			}
		}
		if len(at) != 50 || !differ {
			t.Errorf("%d checks, with different pauses: %v", len(at), differ)
		}
		must.Equal(t, p.hosts[0].checkFailures.Load(), 49, "failures: the check that was interrupted does not count")
	})
}

// A check takes neither a slot nor a connection of the requests, carries the secret, and reads the
// status strictly.
func TestProbe(t *testing.T) {
	f := func(name, answer, wantCause string) {
		t.Helper()
		got := make(chan *http.Request, 10)
		ln, url := listen(t)
		serve(t, ln, func(c net.Conn) {
			r, _ := http.ReadRequest(bufio.NewReader(c))
			got <- r
			if answer == hang {
				<-t.Context().Done()
			}
			_, _ = io.WriteString(c, answer)
		})
		within := patience
		if answer == hang {
			within = 250 * time.Millisecond
		}
		p := newPool(t, io.Discard, func(c *Config) {
			c.URLs, c.ConnsMax, c.Timeout = []string{url}, 0, 0
			c.Check = Check{Path: "/readyz?a=b", Timeout: within, Secret: "open sesame"}
		})
		must.Equal(t, fmt.Sprint(p.hosts[0].probe(t.Context())), wantCause, "%s", name)
		r := <-got
		must.Equal(t, fmt.Sprint(r.Method, r.RequestURI, r.Header["X-Gateway-Secret"], r.Close, " http://", r.Host),
			"GET/readyz?a=b[open sesame] true "+url, "%s: the request", name)
		if stats := p.Stats(time.Now())[0]; stats.Open != 0 || stats.Failures != 0 {
			t.Errorf("%s: %+v", name, stats)
		}
	}
	f("well", closing, "<nil>")
	f("ill", failing, "GET /readyz?a=b responded with 500: \"{}\"")
	f("elsewhere", "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "GET /readyz?a=b responded with 302: \"\"")
	f("it does not accept the gateway", forbidden, "GET /readyz?a=b responded with 401: "+
		"it does not accept this gateway; set GATEWAY_UPSTREAM_SECRET to the secret that it expects, for petsvc its PETSVC_SECRET")
	f("malformed", "HTTP/1.1 2000 OK\r\n\r\n", "GET /readyz?a=b: http1: the status line is malformed")
	f("dead", dead, "GET /readyz?a=b: http1: the connection ended during the message: EOF")
	f("silent", hang, "no response to GET /readyz?a=b within 250ms")
}

// A URL has the port of its scheme, and is followed by nothing. The name of a service may come
// before it.
func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"http://a": "tcp a:80", "https://a": "tcp a:443", "http://[::1]:1/": "tcp [::1]:1",
		"Or.d_e-r5=http://a:2": "Or.d_e-r5 tcp a:2", "unix:/s=t": "unix /s=t",
		"http://u@a": "", "http://a/b": "", "http://a?b": "", "http://a#b": "", "http://:1": "", "ftp://a": "", "unix:": "",
	} {
		name, url := cutName(text)
		at, err := parseURL(url)
		must.Equal(t, strings.TrimSpace(name+" "+at.network+" "+at.address), want, "%s: %v", text, err)
		must.Equal(t, CheckURL(text) == nil, want != "", "%s is valid", text)
	}
}

// The end of the context ends a check that waits for its response.
func TestCheckEnds(t *testing.T) {
	s := newInstance(t, hang)
	p := newPool(t, io.Discard, func(c *Config) { c.Check = Check{Path: "/", Timeout: time.Minute} }, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	unchecked := newPool(t, io.Discard, func(c *Config) { c.URLs = []string{"unix:/none"} })
	go func() {
		Pools{"": unchecked}.Check(ctx) // returns at once
		Pools{"": p}.Check(ctx)
		close(ended)
	}()
	testkit.Eventually(t, patience, "a check", func() bool { _, n := s.seen(); return n > 0 })
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the checks go on")
	}
}

func TestCheckPath(t *testing.T) {
	for path, isValid := range map[string]bool{
		"/": true, "/a?b=c%20d": true, "": false, "readyz": false, "/a b": false, "/a\r\nb": false, "/#a": false, "/é": false,
		"/~": true, "/\x7f": false,
	} {
		const cure = "begin it with / and write other characters than visible ASCII as %XX, for example /readyz"
		if err := CheckPath(path); (err == nil) != isValid || err != nil && err.Error() != cure {
			t.Errorf("%q: %v", path, err)
		}
	}
}
