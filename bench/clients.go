package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// Clients that wrk cannot be: they resume sessions, or keep connections without a request.

// createCertificate writes a self-signed certificate with an ECDSA key on P-256, which all servers use.
func (l *lab) createCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return errors.Join(
		os.WriteFile(l.certificate, certText, 0o600),
		os.WriteFile(l.privateKey, keyText, 0o600),
		os.WriteFile(l.identity, slices.Concat(certText, keyText), 0o600),
	)
}

// clientTLS trusts the lab's certificate. The key exchange is X25519 for all servers: OpenSSL 3.0 does not have the hybrid one
// (X25519MLKEM768) that Go prefers.
func (l *lab) clientTLS() (*tls.Config, error) {
	text, err := os.ReadFile(l.certificate)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	return &tls.Config{
		RootCAs: trusted, ServerName: "localhost", MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519},
	}, nil
}

// dial opens a connection, with TLS if the site has it.
func dial(o *site, config *tls.Config) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", o.listen, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if o.as.tls {
		conn = tls.Client(conn, config)
	}
	return conn, conn.SetDeadline(time.Now().Add(20 * time.Second))
}

// readTokens returns the keys of a file.
func readTokens(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	return strings.Fields(string(text)), err
}

const success = "HTTP/1.1 200 "

func requestText(token, fields string) []byte {
	return []byte("GET /v1/pets?limit=20 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n" + fields + "\r\n")
}

// fullHandshakes and resumedHandshakes make a new connection with TLS for each request. The servers' session tickets make a
// handshake short; the first one of each client is full.
func fullHandshakes(ctx context.Context, l *lab, o *site, t traffic) (summary, error) {
	return handshakes(ctx, l, o, t, false)
}

func resumedHandshakes(ctx context.Context, l *lab, o *site, t traffic) (summary, error) {
	return handshakes(ctx, l, o, t, true)
}

func handshakes(ctx context.Context, l *lab, o *site, t traffic, resume bool) (summary, error) {
	config, err := l.clientTLS()
	if err != nil {
		return summary{}, err
	}
	tokens, err := readTokens(t.keysPath)
	if err != nil {
		return summary{}, err
	}
	type outcome struct {
		took   []time.Duration
		non2xx int64
		err    error
	}
	outcomes := make(chan outcome)
	begin := time.Now()
	for i := range t.connections {
		go func() {
			var end outcome
			own := config.Clone()
			if resume {
				own.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			}
			token := tokens[i%len(tokens)]
			for first := true; end.err == nil && ctx.Err() == nil && time.Since(begin) < t.duration; first = false {
				start := time.Now()
				resumed, ok, err := exchangeOnce(o, own, token)
				if err == nil && resumed != (resume && !first) {
					err = fmt.Errorf("a session was resumed: %v, want %v", resumed, !resumed)
				}
				if !ok {
					end.non2xx++
				}
				end.took, end.err = append(end.took, time.Since(start)), err
			}
			outcomes <- end
		}()
	}
	var s summary
	var took []time.Duration
	for range t.connections {
		end := <-outcomes
		took, s.Non2xx, err = append(took, end.took...), s.Non2xx+end.non2xx, errors.Join(err, end.err)
	}
	if s.Requests, s.Micros = int64(len(took)), time.Since(begin).Microseconds(); err != nil || len(took) == 0 {
		return s, fmt.Errorf("%d handshakes: %w", len(took), err)
	}
	s.Percentiles = percentilesOf(took)
	return s, nil
}

// percentilesOf returns the percentiles that load.lua prints, in µs. It sorts the durations, of which there is at least one.
func percentilesOf(took []time.Duration) (micros []int64) {
	slices.Sort(took)
	for _, p := range percentiles {
		micros = append(micros, took[int(p/100*float64(len(took)-1))].Microseconds())
	}
	return micros
}

// exchangeOnce makes one request on a new connection, and reports whether its session was resumed and whether the status is 200.
// The server sends its tickets before the response, so a client that has read that has them.
func exchangeOnce(o *site, config *tls.Config, token string) (resumed, ok bool, err error) {
	conn, err := dial(o, config)
	if err != nil {
		return false, false, err
	}
	defer conn.Close()
	if _, err := conn.Write(requestText(token, "Connection: close\r\n")); err != nil {
		return false, false, err
	}
	text, err := io.ReadAll(conn)
	return conn.(*tls.Conn).ConnectionState().DidResume, bytes.HasPrefix(text, []byte(success)), err
}

// idle measures the memory of connections that have made one request each and are open. It starts the system for that, because
// memory that a run under load has taken would hide it.
func (l *lab) idle(ctx context.Context, s system, as setup, t traffic) (run Run, err error) {
	config, err := l.clientTLS()
	if err != nil {
		return run, err
	}
	tokens, err := readTokens(t.keysPath)
	if err != nil {
		return run, err
	}
	o, err := l.open(ctx, s, as)
	if err != nil {
		return run, err
	}
	defer l.end(o)
	before := o.process.resident()
	for i := range t.connections {
		conn, err := dial(o, config)
		if err != nil {
			return run, err
		}
		defer conn.Close()
		if err := exchange(conn, tokens[i%len(tokens)]); err != nil {
			return run, fmt.Errorf("%s: connection %d: %w", s.name, i, err)
		}
	}
	after := o.process.resident()
	run = Run{
		System: s.name, Connections: t.connections, ResidentMB: float64(after) / 1e6,
		IdleKB: float64(after-before) / 1000 / float64(t.connections),
	}
	log.Printf("c=%-4d %-40s %7.1f kB per connection", run.Connections, run.System, run.IdleKB)
	return run, nil
}

// exchange makes one request and keeps the connection.
func exchange(conn net.Conn, token string) error {
	if _, err := conn.Write(requestText(token, "")); err != nil {
		return err
	}
	response := make([]byte, 4<<10)
	n, err := io.ReadAtLeast(conn, response, len(success))
	if err == nil && !bytes.HasPrefix(response, []byte(success)) {
		err = fmt.Errorf("response %q", response[:n])
	}
	return err
}

// awaitResponse waits until a site that listens also responds. It may refuse the request.
func (l *lab) awaitResponse(o *site) error {
	config, err := l.clientTLS()
	if err != nil {
		return err
	}
	conn, err := dial(o, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(requestText("none", "")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// startCollector starts a collector of traces that accepts everything, in this process.
func (l *lab) startCollector() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.collector = "http://" + ln.Addr().String()
	go func() {
		_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/x-protobuf")
		}))
	}()
	return nil
}
