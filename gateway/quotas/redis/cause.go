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

// cures say what an operator can do about a reply of Redis, by the words with which the reply
// begins.
var cures = map[string]string{
	"WRONGPASS":  credentials,
	"NOAUTH":     credentials,
	"NOPERM":     "the Redis user may not do this: allow it all commands on the keys that begin with --redis-prefix (ACL SETUSER), or correct REDIS_URL",
	"OOM":        "Redis has no memory left: raise maxmemory",
	"MISCONF":    "Redis cannot write to its disk: its log says why",
	"READONLY":   "this Redis is a replica: correct REDIS_URL, or promote it",
	"NOREPLICAS": "Redis has too few replicas that answer (min-replicas-to-write): start them",
	"MOVED":      "this Redis is a node of a cluster: name at least two nodes in REDIS_URL, separated by commas",
	"ERR AUTH":   credentials, // a password for a user that has none

	"ERR unknown command":                            "this server has no functions: REDIS_URL has to name Redis 7 or newer, or a Sentinel as redis+sentinel://…",
	"ERR This instance has cluster support disabled": "this Redis is not a node of a cluster: name one address in REDIS_URL",
}

const credentials = "Redis refuses the user or the password: correct REDIS_URL"

// Explain adds to an error what an operator can do about it, if this is known.
func Explain(err error) error {
	if cure := cmp.Or(cureOf(err), certificate.Cure(err, time.Now())); cure != "" {
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

// IsRefused reports whether Redis refuses the credentials of this gateway. This does not end by
// itself.
func IsRefused(err error) bool { return cureOf(err) == credentials }

// cureOf returns the cure of an error that is a reply of Redis, if there is one.
func cureOf(err error) string {
	var reply redis.Error
	if errors.As(err, &reply) {
		for words, cure := range cures {
			if strings.HasPrefix(reply.Error(), words) {
				return cure
			}
		}
	}
	return ""
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
