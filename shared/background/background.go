// Package background runs goroutines that end with their owner.
package background

import (
	"context"
	"sync"
	"time"
)

// Group is a set of goroutines. The zero Group is empty. All methods are safe for concurrent use.
type Group struct {
	mu      sync.Mutex // guards the fields below
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Context returns the context of all goroutines of the group. Stop ends it.
func (g *Group) Context() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.context()
}

// context is Context for a caller that holds mu.
func (g *Group) context() context.Context {
	if g.ctx == nil {
		g.ctx, g.cancel = context.WithCancel(context.Background())
	}
	return g.ctx
}

// Go runs f in a goroutine, until ctx ends. After Stop it does nothing.
func (g *Group) Go(f func(ctx context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx := g.context()
	if ctx.Err() == nil {
		g.running.Go(func() { f(ctx) })
	}
}

// Stop ends the context and waits until all goroutines have returned. It may be called again.
func (g *Group) Stop() {
	g.mu.Lock()
	g.context()
	g.cancel()
	g.mu.Unlock()
	g.running.Wait()
}

// Pause returns true after this time, or false as soon as ctx ends.
func Pause(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}
