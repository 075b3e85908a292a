package edge

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"petgate/gateway/quotas"
	"petgate/shared/api"
	"petgate/shared/core/access"
	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/core/quota"
)

// isReport reports whether the request asks how much of the quota is left. The gateway answers it itself.
func (e *Edge) isReport(x *exchange) bool {
	r := e.routes.report
	return r != nil && string(x.request.Path) == r.Path &&
		(string(x.request.Method) == http.MethodGet || string(x.request.Method) == http.MethodHead)
}

// report answers a request for the quota. It comes before authorize, because a key that is banned or whose account is suspended
// may ask too, and learns that from the report. It charges nothing, so it has a limit of its own.
//
// A key that is used from an address outside its networks gets no report: it may be stolen.
func (e *Edge) report(x *exchange) refusal {
	x.route = e.routes.report
	if !access.Contains(x.entry.Allow, x.client) {
		return refusal{reason: addressNotAllowed}
	}
	if !e.polls.take(x.entry.Key, x.now) {
		return refusal{reason: quotaPolling}
	}
	verdict, err := e.quotas.Current(quotas.Request{Tenant: x.entry.Tenant, Version: x.entry.Version, Limits: x.entry.Limits})
	if err != nil {
		verdict = e.quotas.Known(x.entry.Tenant, x.entry.Limits)
		verdict.Degraded = true
	}
	x.verdict, x.hasReport = verdict, true
	if e.cfg.BanRule.After > 0 {
		x.strikesLeft = e.strikes.left(x.entry.Key, x.now)
	}
	return refusal{}
}

// writeReport writes what is known of the key and its tenant's quota. Its figures are those of the rate-limit headers.
func (x *exchange) writeReport(h *fasthttp.ResponseHeader) {
	h.SetContentType("application/json")
	x.line = x.appendReport(x.line[:0])
	x.rc.Response.SetBody(x.line)
}

func (x *exchange) appendReport(dst []byte) []byte {
	entry, v := &x.entry, &x.verdict
	dst = api.AppendString(append(dst, `{"plan":`...), entry.Plan)
	dst = append(entry.Tenant.AppendTo(append(dst, `,"tenant":"`...)), '"')
	dst = strconv.AppendBool(append(dst, `,"degraded":`...), v.Degraded)
	dst = appendUsage(append(dst, `,"policies":[`...), x, quota.Minute, v.Minute, minuteSeconds)
	dst = appendUsage(append(dst, ','), x, quota.Day, v.Day, daySeconds)

	dst = append(entry.Key.AppendTo(append(dst, `],"key":{"id":"`...)), '"')
	dst = api.AppendString(append(dst, `,"name":`...), entry.Name)
	dst = api.AppendString(append(dst, `,"hint":`...), apikey.Hint(string(x.token)))
	dst = append(append(append(dst, `,"environment":"`...), entry.Environment.String()...), `","scopes":[`...)
	for i, name := range entry.Scopes.Names() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = api.AppendString(dst, name)
	}
	dst = appendInstant(append(dst, `],"expiresAt":`...), entry.ExpiresAt)
	dst = appendInstant(append(dst, `,"endsAt":`...), entry.GraceEndsAt)
	dst = append(dst, `,"replacedBy":`...)
	if entry.ReplacedBy.IsZero() {
		dst = append(dst, "null"...)
	} else {
		dst = append(entry.ReplacedBy.AppendTo(append(dst, '"')), '"')
	}
	dst = append(dst, `},"ban":`...)
	if entry.BannedUntil > x.now {
		dst = x.entryBan().AppendJSON(dst)
	} else {
		dst = append(dst, "null"...)
	}
	dst = strconv.AppendBool(append(dst, `,"suspended":`...), entry.Suspended)
	dst = append(dst, `,"strikesUntilBan":`...)
	if x.strikesLeft > 0 {
		dst = strconv.AppendInt(dst, int64(x.strikesLeft), 10)
	} else { // bans are switched off
		dst = append(dst, "null"...)
	}
	return append(dst, '}')
}

func appendUsage(dst []byte, x *exchange, policy quota.Policy, u quota.Usage, window int64) []byte {
	dst = append(append(append(dst, `{"name":"`...), policy.String()...), `","limit":`...)
	dst = strconv.AppendInt(dst, u.Limit, 10)
	dst = strconv.AppendInt(append(dst, `,"used":`...), u.Used, 10)
	dst = strconv.AppendInt(append(dst, `,"remaining":`...), u.Remaining(), 10)
	dst = strconv.AppendInt(append(dst, `,"window":`...), window, 10)
	dst = appendInstant(append(dst, `,"resetAt":`...), max(u.ResetAt, x.now))
	nextAt := instant.Millis(0)
	if u.RetryAt != 0 && u.Limit > 0 { // a limit of 0 admits none at any time. Like Retry-After: a time from now, because the clock that decides may differ
		nextAt = x.now + max(0, u.RetryAt-x.verdict.At)
	}
	dst = appendInstant(append(dst, `,"nextAt":`...), nextAt)
	return append(dst, '}')
}

// appendInstant appends an instant as a JSON string, or null for 0. It rounds up to a second, like the headers.
func appendInstant(dst []byte, at instant.Millis) []byte {
	if at == 0 {
		return append(dst, "null"...)
	}
	return append((at+999).Time().AppendFormat(append(dst, '"'), `2006-01-02T15:04:05Z`), '"')
}

// The limit of reports for each key: one a second, and up to pollBurst at once.
const (
	pollInterval = time.Second
	pollBurst    = 10
)

// polls limits the reports of each key. It has a record for each key that asked in the last pollBurst seconds. The number of
// records is bounded; a key whose record was dropped may ask again at once. The zero value is ready to use.
type polls [pollShards]pollShard

type pollShard struct {
	sync.Mutex
	freeAt map[id.Key]instant.Millis // when the key has its whole burst again
}

const (
	pollShards     = 64
	pollRecordsMax = 1024 // of a shard, at about 40 bytes
)

// take reports whether k may have a report at now.
func (p *polls) take(k id.Key, now instant.Millis) bool {
	s := &p[k[len(k)-1]%pollShards]
	s.Lock()
	defer s.Unlock()
	latest := now.Add(pollBurst * pollInterval)
	was, known := s.freeAt[k]
	if was > latest { // the clock has stepped back
		was = latest
		s.freeAt[k] = was
	}
	freeAt := max(was, now).Add(pollInterval)
	if freeAt > latest {
		return false
	}
	if s.freeAt == nil {
		s.freeAt = make(map[id.Key]instant.Millis)
	}
	if !known && len(s.freeAt) >= pollRecordsMax {
		s.sweep(now)
	}
	s.freeAt[k] = freeAt
	return true
}

// sweep makes room: it drops the records that have no effect any longer or, if there are none, all of them.
func (s *pollShard) sweep(now instant.Millis) {
	maps.DeleteFunc(s.freeAt, func(_ id.Key, freeAt instant.Millis) bool { return freeAt <= now })
	if len(s.freeAt) >= pollRecordsMax {
		clear(s.freeAt)
	}
}
