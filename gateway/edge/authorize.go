package edge

import (
	"petgate/shared/api"
	"petgate/shared/core/access"
)

// authorize refuses a valid key that may not call now.
func (e *Edge) authorize(x *exchange) refusal {
	if x.access != access.Banned {
		return refusals[x.access]
	}
	ban := x.entryBan()
	x.limited.Ban = ban
	r := refusal{reason: keyBanned, message: bannedByOperator}
	switch {
	case ban.IsAutomatic:
		e.strikes.Banned(x.entry.Key, x.now, ban.EndsAt)
		r.message = bannedForStrikes
	case ban.Notice != "":
		r.message = bannedWithNotice + ban.Notice
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
