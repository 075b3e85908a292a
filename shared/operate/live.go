package operate

import (
	"time"

	"petgate/shared/core/instant"
	"petgate/shared/core/plan"
)

// LiveWithin is how long a gateway has to answer a Watch. A variable, because tests have to pass on
// a busy machine.
var LiveWithin = time.Second

// Live is a gateway's response to GET /live on its admin port: what it does now. Counts grow from
// Since on; a reader takes the difference of two answers with the same Since.
type Live struct {
	ID          string `json:"gateway"`
	Environment string `json:"environment"`
	Mode        string `json:"mode"`          // where it counts quotas: shared, memory or outage
	Since       int64  `json:"since"`         // when the counting began, in ms
	Elapsed     int64  `json:"elapsedMillis"` // since then; steps of the clock do not change it
	Requests    int64  `json:"requests"`      // with a known key, also one that is revoked or has expired
	// how many of them were not charged; reports of the quota do not count here
	Refused int64  `json:"refused"`
	Bans    int64  `json:"bans"` // imposed by this gateway since its start
	Version string `json:"version"`

	// when the first of its certificates expires; 0: it has none
	CertificateEnds instant.Millis `json:"certificateEndsAt"`

	Within []float64 `json:"withinSeconds"`
	Took   []uint64  `json:"took"` // how many requests had a response Within each of these times; the last one: all

	Active  int          `json:"active"`  // tenants that made a request in the last 10 to 20 s
	Tenants []LiveTenant `json:"tenants"` // the most active first
}

// LiveTenant is what one tenant does at one gateway.
type LiveTenant struct {
	ID     string      `json:"id"`
	Plan   string      `json:"plan"`
	Limits plan.Limits `json:"limits"`
	// the tenant's counts grow from here on, as elapsedMillis of the gateway
	Since      int64 `json:"sinceMillis"`
	Requests   int64 `json:"requests"`
	Refused    int64 `json:"refused"`
	MinuteUsed int64 `json:"minuteUsed"` // as of the gateway's last decision
	DayUsed    int64 `json:"dayUsed"`
	MonthUsed  int64 `json:"monthUsed"`
}
