package database

import (
	"context"
	"time"

	"github.com/lib/pq"
)

const (
	// A lost connection is noticed only when something is sent over it.
	listenPing = 10 * time.Second

	// Longer than a ping takes, so that only a dead connection is silent for so long.
	listenSilence = listenPing + 5*time.Second

	reconnectMin = 50 * time.Millisecond
	reconnectMax = time.Second

	sqlitePoll = 200 * time.Millisecond
)

// Listener sends on C when the database may have changed. This is a hint: several changes may share
// a wake-up, there are wake-ups without a change, and after a lost connection one wake-up stands
// for all changes that were missed.
type Listener struct {
	C <-chan struct{} // is never closed

	stop context.CancelFunc
	done chan struct{}
}

// Listen returns at once and connects in the background until Close. With PostgreSQL it has a
// connection of its own and wakes on NOTIFY channel. SQLite has no channels: it wakes every 200 ms,
// whether there is a change or not.
func (d *DB) Listen(channel string) *Listener {
	ctx, stop := context.WithCancel(context.Background())
	wake := make(chan struct{}, 1)
	l := &Listener{C: wake, stop: stop, done: make(chan struct{})}
	notify := func() {
		select {
		case wake <- struct{}{}:
		default: // a wake-up is already pending
		}
	}
	go func() {
		defer close(l.done)
		if d.dialect == SQLite {
			for tick := time.Tick(sqlitePoll); ctx.Err() == nil; {
				notify()
				select {
				case <-tick:
				case <-ctx.Done():
				}
			}
		} else {
			d.listenPostgres(ctx, channel, notify)
		}
	}()
	return l
}

// Close ends the connection and waits until all goroutines of the listener have ended, for at most
// about a second.
func (l *Listener) Close() {
	l.stop()
	<-l.done
}

func (d *DB) listenPostgres(ctx context.Context, channel string, notify func()) {
	// The dialer's context closes the connection when ctx ends. This ends operations that wait for
	// the server; Close alone would wait for them.
	p := pq.NewDialListener(&dialer{ctx: ctx, silence: listenSilence}, d.dsn, reconnectMin, reconnectMax, nil)
	background := make(chan struct{})
	go func() {
		defer close(background)
		// Not in the loop below: a ping waits for its response, which may be queued behind
		// notifications that the loop has to read.
		tick := time.NewTicker(listenPing)
		defer tick.Stop()
		listening := false
		for {
			if listening {
				_ = p.Ping() // a failure closes the connection, and the listener connects again
			} else if err := p.Listen(channel); err == nil { // blocks until connected; a standby refuses it
				listening = true
				notify() // earlier changes may have been missed
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				_ = p.Close()
				return
			}
		}
	}()
	closing := ctx.Done()
	for {
		select {
		case _, open := <-p.Notify: // nil after a reconnection: wakes too
			if !open {
				<-background
				return
			}
			notify()
		case <-closing:
			closing = nil
			_ = p.Close() // ends a Listen that still waits for the first connection
		}
	}
}
