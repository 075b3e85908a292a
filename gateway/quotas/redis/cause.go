package redis

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"petgate/gateway/quotas/store"
	"petgate/shared/certificate"
)

// cures say what an operator can do about a reply of Redis, by the words with which the reply
// begins.
var cures = map[string]string{
	"WRONGPASS": credentials,
	"NOAUTH":    credentials,
	"NOPERM": "the Redis user may not do this: allow it all commands on the keys that begin with " +
		"--redis-prefix (ACL SETUSER), or correct REDIS_URL",
	"OOM":        "Redis has no memory left: raise maxmemory",
	"MISCONF":    "Redis cannot write to its disk: its log says why",
	"READONLY":   "this Redis is a replica: correct REDIS_URL, or promote it",
	"NOREPLICAS": "Redis has too few replicas that answer (min-replicas-to-write): start them",
	"MOVED":      "this Redis is a node of a cluster: name at least two nodes in REDIS_URL, separated by commas",
	"ERR AUTH":   credentials, // a password for a user that has none

	"ERR unknown command": "this server has no functions: REDIS_URL has to name Redis 7 or newer, " +
		"or a Sentinel as redis+sentinel://…",
	"ERR This instance has cluster support disabled": "this Redis is not a node of a cluster: " +
		"name one address in REDIS_URL",
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

// errDown means that a Redis server is not asked, because it did not answer recently.
var errDown = errors.New("no answer from Redis lately")

// isUnsure reports whether Redis may have executed a call, or one tenant's part of a call, that
// returned this error. Redis has not executed a call that it refused, or a call that was never
// sent.
func isUnsure(err error) bool {
	if err == nil {
		return false // first, because the code below allocates
	}
	var reply redis.Error
	var dial *net.OpError
	isRefused := errors.Is(err, errDown) || errors.Is(err, store.ErrRecord) || errors.As(err, &reply)
	isUnsent := errors.As(err, &dial) && dial.Op == "dial"
	return !isRefused && !isUnsent
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isSlotTrouble reports whether a cluster serves a slot nowhere at the moment, because the slot
// moves or nobody has it. The call was not executed. It concerns only the tenants of that slot.
func isSlotTrouble(err error) bool {
	for _, prefix := range [...]string{"TRYAGAIN", "CLUSTERDOWN Hash slot", "ASK ", "MOVED "} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// isBroken reports whether a call's connection broke, so that it is unknown whether the call was
// executed. A timeout does not count: another attempt would take as long again.
func isBroken(ctx context.Context, err error) bool {
	return err != nil && isUnsure(err) && !isTimeout(err) && ctx.Err() == nil
}
