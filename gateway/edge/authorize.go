package edge

import (
	"petgate/shared/api"
	"petgate/shared/core/access"
)

// authorize refuses a valid key that may not call now.
func (e *Edge) authorize(x *exchange) refusal {
	if x.why != access.Banned {
		return refusals[x.why]
	}
	x.ban = x.entryBan()
	r := refusal{reason: keyBanned, message: bannedByOperator}
	switch {
	case x.ban.IsAutomatic:
		e.strikes.Banned(x.entry.Key, x.now, x.ban.EndsAt)
		r.message = bannedForStrikes
	case x.ban.Notice != "":
		r.message = bannedWithNotice + x.ban.Notice
	}
	return r
}

const (
	bannedForStrikes = "the API key is banned, because it sent too many requests without waiting: wait for Retry-After"
	bannedByOperator = "the operator has banned the API key: wait for Retry-After"
	bannedWithNotice = "the operator has banned the API key: "
)

// entryBan is the ban of the request's key.
func (x *exchange) entryBan() api.Ban {
	return api.Ban{EndsAt: x.entry.BannedUntil, IsAutomatic: x.entry.BanIsAutomatic, Notice: x.entry.BanNotice}
}
