package app

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"petgate/gateway/quotas/redis"
	"petgate/shared/api"
	"petgate/shared/core/instant"
	"petgate/shared/service"
)

// about is the body of GET /about: what keyadmin compares between gateways. It has no secrets.
type about struct {
	Version     string            `json:"version"`
	Environment string            `json:"environment"`
	NowMillis   int64             `json:"nowMillis"` // by this host's clock
	Mode        string            `json:"mode"`      // where quotas are counted: shared, memory or outage
	Console     bool              `json:"console"`   // it serves the operators' console
	Settings    map[string]string `json:"settings"`  // those that all gateways should share, by the names of their flags
	Operations  []aboutOperation  `json:"operations"`
	Redis       []redis.Server    `json:"redis"`
}

type aboutOperation struct {
	ID     string   `json:"id"`
	Scopes []string `json:"scopes"` // that a key needs
	Gone   bool     `json:"gone"`   // it is no longer served

	DeprecatedAt instant.Millis `json:"deprecatedAt,omitempty"` // 0: it is not deprecated
	SunsetAt     instant.Millis `json:"sunsetAt,omitempty"`     // from then on it is gone; 0: never
	Successor    string         `json:"successor,omitempty"`    // path of what replaces it
}

// counted is the part of the quotas that /about needs.
type counted interface{ Mode() string }

// aboutWithin is how long the Redis servers have to answer.
const aboutWithin = time.Second

// serveAbout serves GET /about.
func serveAbout(cfg Config, operations []api.Operation, limits counted) http.HandlerFunc {
	answer := about{
		Version: service.Version(), Environment: cfg.Environment.String(), Console: cfg.Console, Settings: cfg.shared(),
		Operations: []aboutOperation{}, Redis: []redis.Server{},
	}
	return func(w http.ResponseWriter, r *http.Request) {
		answer, now := answer, time.Now()
		for _, o := range operations {
			gone := !o.SunsetAt.IsZero() && !now.Before(o.SunsetAt)
			described := aboutOperation{ID: o.ID, Scopes: o.Scope.Names(), Gone: gone, Successor: o.Successor}
			if !o.DeprecatedAt.IsZero() {
				described.DeprecatedAt = instant.Of(o.DeprecatedAt)
			}
			if !o.SunsetAt.IsZero() {
				described.SunsetAt = instant.Of(o.SunsetAt)
			}
			answer.Operations = append(answer.Operations, described)
		}
		if shared, ok := limits.(interface {
			Servers(ctx context.Context) []redis.Server
		}); ok {
			ctx, cancel := context.WithTimeout(r.Context(), aboutWithin)
			defer cancel()
			answer.Redis = shared.Servers(ctx)
		}
		answer.Mode, answer.NowMillis = limits.Mode(), time.Now().UnixMilli()
		service.WriteJSON(w, http.StatusOK, answer)
	}
}

// shared are the settings that should be the same at all gateways of an environment.
func (c *Config) shared() map[string]string {
	return map[string]string{
		"redis-url":                 servers(string(c.RedisURL)),
		"redis-prefix":              c.RedisPrefix,
		"limits-on-outage":          c.LimitsOnOutage.String(),
		"directory-max-age":         c.DirectoryMaxAge.String(),
		"auth-failures-per-minute":  strconv.Itoa(c.AuthFailures),
		"ban-after":                 strconv.Itoa(c.BanAfter),
		"ban-for":                   c.BanFor.String(),
		"ban-max":                   c.BanMax.String(),
		"body-bytes-max":            strconv.Itoa(c.BodyBytesMax),
		"upstream-conns-per-tenant": strconv.Itoa(c.TenantConnsMax),
	}
}

// servers returns the hosts of Redis URLs, without users and passwords.
func servers(urls string) string {
	var hosts []string
	for part := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host+u.Path)
		}
	}
	return strings.Join(hosts, ",")
}
