package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
)

// Pools has a pool for each service by its name. The service without a name is the default.
type Pools map[string]*Pool

// named is a URL with the name of its service before it.
var named = regexp.MustCompile(`^([A-Za-z0-9._-]{1,64})=(.*)$`)

// cutName returns the name of the service, which may be empty, and the URL.
func cutName(text string) (name, url string) {
	if parts := named.FindStringSubmatch(text); parts != nil {
		return parts[1], parts[2]
	}
	return "", text
}

// CheckURL returns an error if the URL of an upstream, or its name, is invalid.
func CheckURL(text string) error {
	_, url := cutName(text)
	_, err := parseURL(url)
	return err
}

// NewPools returns the pools of cfg.URLs, each of which may have a name before it, as in
// orders=http://host:port. They connect to nothing yet.
func NewPools(cfg Config) (Pools, error) {
	urls := map[string][]string{}
	for _, text := range cfg.URLs {
		name, url := cutName(text)
		urls[name] = append(urls[name], url)
	}
	if len(urls) == 0 {
		return nil, errors.New("there are no upstreams: give at least one")
	}
	all := Pools{}
	var wrong []error
	for name, of := range urls {
		cfg.URLs = of
		pool, err := New(cfg)
		all[name], wrong = pool, append(wrong, err)
	}
	return all, errors.Join(wrong...)
}

// Of returns the pool of a service. Its error says how to add it.
func (p Pools) Of(name string) (*Pool, error) {
	pool := p[name]
	switch {
	case pool != nil:
		return pool, nil
	case name == "":
		return nil, errors.New("there is no upstream without a name: give one, as in http://host:port")
	}
	return nil, fmt.Errorf("there is no upstream %q: give one, as in %s=http://host:port", name, name)
}

// Problems says what is wrong with instances, for people, in the order of the services' names.
func (p Pools) Problems() (found []string) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		found = append(found, p[name].Problems()...)
	}
	return found
}

// CloseIdle closes all unused connections.
func (p Pools) CloseIdle() {
	for _, pool := range p {
		pool.CloseIdle()
	}
}

// Check checks all instances until ctx ends, or returns at once if there is no path. It must be
// called at most once.
func (p Pools) Check(ctx context.Context) {
	var all sync.WaitGroup
	for _, pool := range p {
		for _, h := range pool.hosts {
			if pool.cfg.Check.Path != "" {
				all.Go(func() { h.watch(ctx, h.probe) })
			}
		}
	}
	all.Wait()
}
