package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisCalls counts the commands that clients have sent to the Redis at addr since it started, without those that its
// scripts sent: what is asked for is trips, not work.
func redisCalls(addr string) (int64, error) {
	text, err := redisInfo(addr, "commandstats")
	if err != nil {
		return 0, err
	}
	var calls int64
	for line := range strings.Lines(text) {
		name, values, ok := strings.Cut(line, ":")
		if !ok || name != "cmdstat_evalsha" && name != "cmdstat_eval" {
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

// redisInfo asks for one section of INFO in Redis's inline protocol.
func redisInfo(addr, section string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "INFO %s\r\n", section); err != nil {
		return "", err
	}
	reader := bufio.NewReader(conn)
	head, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return "", fmt.Errorf("answer to INFO: %q", head)
	}
	text := make([]byte, size)
	_, err = io.ReadFull(reader, text)
	return string(text), err
}
