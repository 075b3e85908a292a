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
	"os"
	"slices"
	"strings"
	"time"
)

// A client that wrk cannot be: it keeps connections without a request.

// createCertificate writes a self-signed certificate with an ECDSA key on P-256, which all servers
// use.
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

// clientTLS trusts the lab's certificate. The key exchange is X25519 for all servers: OpenSSL 3.0
// does not have the hybrid one (X25519MLKEM768) that Go prefers.
func (l *lab) clientTLS() (*tls.Config, error) {
	text, err := os.ReadFile(l.certificate)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	return &tls.Config{
		RootCAs:          trusted,
		ServerName:       "localhost",
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519},
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
	return []byte(
		"GET /v1/pets?limit=20 HTTP/1.1\r\nHost: localhost\r\n" +
			"Authorization: Bearer " + token + "\r\n" + fields + "\r\n",
	)
}

// idle measures the memory of connections that have made one request each and are open. It starts
// the system for that, because memory that a run under load has taken would hide it.
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
