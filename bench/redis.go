package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clients says who uses a Redis.
type clients string

const (
	everyone clients = ""
	alone    clients = "one gateway alone" // other gateways, which look for lost counts once a second, are not counted
)

// store is one Redis.
type store struct {
	addr   string
	socket string // path of its Unix socket
	*process
}

// startRedis starts a Redis without persistence.
func (l *lab) startRedis(ctx context.Context) (*store, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	dir := filepath.Join(l.dir, "redis-"+port)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	p, err := l.launch(nil, "redis-server", "--port", port, "--bind", host, "--unixsocket", socket, "--save", "",
		"--dir", dir)
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := awaitListener(ready, addr); err != nil {
		return nil, fmt.Errorf("redis-server: %w\n%s", err, p.log)
	}
	return &store{addr, socket, p}, nil
}

// calls counts the calls of functions and scripts that the server has received since it started.
// Commands that a script runs are not counted: a call is a trip.
func (s *store) calls() (int64, error) {
	text, err := redisCommand(s.addr, "INFO", "commandstats")
	if err != nil {
		return 0, err
	}
	var calls int64
	for line := range strings.Lines(text) {
		name, values, ok := strings.Cut(line, ":")
		if !ok || name != "cmdstat_evalsha" && name != "cmdstat_eval" && name != "cmdstat_fcall" {
			continue
		}
		count, _, _ := strings.Cut(strings.TrimPrefix(values, "calls="), ",")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("count of calls %q: %w", line, err)
		}
		calls += n
	}
	return calls, nil
}

// redisCommand sends one command whose reply is a bulk string.
func redisCommand(addr string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	request := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	head, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return "", fmt.Errorf("reply to %s: %q", args[0], head)
	}
	text := make([]byte, size)
	_, err = io.ReadFull(reader, text)
	return string(text), err
}
