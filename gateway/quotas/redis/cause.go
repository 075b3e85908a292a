package redis

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/shared/certificate"
)

// cures say what an operator can do about a reply of Redis, by the words with which the reply begins.
var cures = map[string]string{
	"WRONGPASS":  credentials,
	"NOAUTH":     credentials,
	"NOPERM":     "the Redis user may not do this: allow it all commands on the keys that begin with --redis-prefix (ACL SETUSER), or correct REDIS_URL",
	"OOM":        "Redis has no memory left: raise maxmemory",
	"MISCONF":    "Redis cannot write to its disk: its log says why",
	"READONLY":   "this Redis is a replica: correct REDIS_URL, or promote it",
	"NOREPLICAS": "Redis has too few replicas that answer (min-replicas-to-write): start them",
	"MOVED":      "this Redis is a node of a cluster: name at least two nodes in REDIS_URL, separated by commas",
	noFunctions:  "this server has no functions: REDIS_URL has to name Redis 7 or newer, or a Sentinel as redis+sentinel://…",
	noCluster:    "this Redis is not a node of a cluster: name one address in REDIS_URL",
}

// These two replies begin with the word ERR, like many others.
const (
	noFunctions = "ERR unknown command"
	noCluster   = "ERR This instance has cluster support disabled"
)

const credentials = "Redis refuses the user or the password: correct REDIS_URL"

// Explain adds to an error what an operator can do about it, if this is known.
func Explain(err error) error {
	if cure := cmp.Or(cures[kindOf(err)], certificate.Cure(err, time.Now())); cure != "" {
		return &explained{cure, err}
	}
	return err
}

type explained struct {
	cure string
	err  error
}

func (e *explained) Error() string { return e.cure + ": " + e.err.Error() }
func (e *explained) Unwrap() error { return e.err }
func (e *explained) Cure() string  { return e.cure }

// IsRefused reports whether Redis refuses the credentials of this gateway. This does not end by itself.
func IsRefused(err error) bool { return cures[kindOf(err)] == credentials }

// kindOf returns the key in cures for a reply that is an error: usually its first word. "": it is no reply.
func kindOf(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	text := reply.Error()
	if strings.HasPrefix(text, "ERR invalid password") || strings.HasPrefix(text, "ERR AUTH") || strings.HasPrefix(text, "ERR Client sent AUTH") {
		return "WRONGPASS" // before Redis 6, or a password for a user that has none
	}
	for _, kind := range []string{noFunctions, noCluster} {
		if strings.HasPrefix(text, kind) {
			return kind
		}
	}
	kind, _, _ := strings.Cut(text, " ")
	return kind
}

// Cause returns why the last call failed, while a server is down.
func (r *Redis) Cause() error {
	if cause := r.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// HasAnswered reports whether any server has ever answered this gateway.
func (r *Redis) HasAnswered() bool {
	return slices.ContainsFunc(r.servers.all(), func(b *batcher) bool { return b.heard.Load() })
}
