package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// arrivals loads a site at a fixed rate, whether it keeps up or not. Requests arrive at random
// instants, independent of each other (a Poisson process). The first connection that is free sends
// the next request. Latency counts from the arrival, so it includes the wait for a connection.
func arrivals(ctx context.Context, o *site, t traffic) (summary, error) {
	tokens, err := readTokens(t.keysPath)
	if err != nil {
		return summary{}, err
	}
	// The plan is never full, so arrivals wait for nothing.
	plan := make(chan time.Time, int(2*t.perSecond*t.duration.Seconds()))
	began := time.Now()
	clients := make([]client, t.connections)
	var running sync.WaitGroup
	for i := range clients {
		c := &clients[i]
		c.Conn, c.err = dial(o, nil)
		if c.err != nil {
			return summary{}, c.err
		}
		defer c.Close()
		running.Go(func() { c.serve(plan, tokens) })
	}
	runtime.LockOSThread() // a thread that sleeps by itself wakes up within 0.1 ms, Go's timers within 1 ms
	defer runtime.UnlockOSThread()
	for at := began; ctx.Err() == nil && len(plan) < cap(plan); plan <- at {
		pause := rand.ExpFloat64() / t.perSecond * float64(time.Second)
		at = at.Add(time.Duration(pause))
		if at.Sub(began) >= t.duration {
			break
		}
		sleepUntil(at)
	}
	close(plan)
	running.Wait()
	s := summary{Micros: time.Since(began).Microseconds()}
	var took []time.Duration
	for i := range clients {
		c := &clients[i]
		err = errors.Join(err, c.err)
		took, s.Non2xx = append(took, c.took...), s.Non2xx+c.refused
	}
	slices.Sort(took)
	s.Requests = int64(len(took))
	for _, p := range percentiles {
		if len(took) > 0 {
			s.Percentiles = append(s.Percentiles, took[int(p/100*float64(len(took)-1))].Microseconds())
		}
	}
	if err == nil && len(took) == 0 {
		err = errors.New("no request in the whole run")
	}
	return s, err
}

// client is a connection with one request at a time.
type client struct {
	net.Conn
	took    []time.Duration // of each request, since its arrival
	refused int64
	err     error
}

// serve makes a request for each instant of the plan.
func (c *client) serve(plan <-chan time.Time, tokens []string) {
	buffer := make([]byte, 16<<10)
	for at := range plan {
		if c.err != nil {
			continue
		}
		var head []byte
		token := tokens[rand.IntN(len(tokens))]
		head, c.err = c.exchange(requestText(token, ""), buffer)
		if !bytes.HasPrefix(head, []byte(success)) {
			c.refused++
		}
		c.took = append(c.took, time.Since(at))
	}
}

// exchange makes a request and returns the head of the response, which has a length and fits into
// the buffer.
func (c *client) exchange(request, buffer []byte) ([]byte, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	for n := 0; ; {
		more, err := c.Read(buffer[n:])
		if err != nil {
			return nil, err
		}
		n += more
		head, body, ok := bytes.Cut(buffer[:n], []byte("\r\n\r\n"))
		if !ok {
			continue
		}
		_, rest, _ := bytes.Cut(head, []byte("\r\nContent-Length: "))
		value, _, _ := bytes.Cut(rest, []byte("\r\n"))
		length, err := strconv.Atoi(string(value))
		if err != nil || length > len(buffer)-len(head) {
			return nil, fmt.Errorf("response without a usable length: %q", head)
		}
		if len(body) >= length {
			return head, nil
		}
	}
}
