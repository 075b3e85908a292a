package usage

import (
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
)

// Row is the number of requests of one key in one hour, with one operation and one outcome.
type Row struct {
	Tenant    id.Tenant      `json:"tenantId"`
	Key       id.Key         `db:"key_id" json:"keyId,omitzero"`
	Operation string         `db:"operation" json:"operation"` // empty: refused before the operation was known
	Outcome   string         `db:"outcome" json:"outcome"`
	Charged   bool           `db:"charged" json:"charged"` // taken from the quota
	Hour      instant.Millis `db:"hour" json:"hour"`       // the start of the hour
	Requests  int64          `db:"requests" json:"requests"`
	MoreUnits int64          `db:"more_units" json:"moreUnits,omitempty"` // beyond one a request; 0 unless charged
	IsTest    bool           `db:"is_test" json:"test,omitempty"`         // of a test key
	LastAt    instant.Millis `json:"lastAt,omitempty"`                    // of the latest request; only in batches
}

// Taken returns how many requests were taken from the quota, and how many units they cost.
func (r Row) Taken() (charged, units int64) {
	if !r.Charged {
		return 0, 0
	}
	return r.Requests, r.Requests + r.MoreUnits
}

// OfPeriod is a number of requests of one tenant, for one operation and with one outcome, in one
// period.
type OfPeriod struct {
	Start     instant.Millis `db:"start"`
	Operation string         `db:"operation"` // empty: refused before the operation was known
	Outcome   string         `db:"outcome"`
	Requests  int64          `db:"requests"`
}

// Statement is the usage of one tenant. All requests that were made before CompleteThrough are in
// it, except those that a gateway lost: see UsageGaps.
type Statement struct {
	Rows            []StatementRow // ordered by start, key, operation and outcome
	CompleteThrough instant.Millis
}

// StatementRow is the number of requests of one key in one hour or UTC day, with one operation and
// one outcome.
type StatementRow struct {
	Start     instant.Millis `db:"start"` // of the hour or day
	Key       id.Key         `db:"key_id"`
	Operation string         `db:"operation"` // empty: refused before the operation was known
	Outcome   string         `db:"outcome"`
	Requests  int64          `db:"requests"`
	Charged   int64          `db:"charged"` // of the requests: taken from the quota
	Units     int64          `db:"units"`   // that the charged requests cost
}

// OfTenant is the number of the requests with a tenant's live keys.
type OfTenant struct {
	Tenant     id.Tenant `db:"tenant_id"`
	Requests   int64     `db:"requests"`
	Charged    int64     `db:"charged"`
	Units      int64     `db:"units"`
	BusiestDay int64     `db:"busiest_day"` // units in the busiest UTC day
}

// OfOperation is the number of a key's requests for one operation.
type OfOperation struct {
	Operation  string    `db:"operation"`
	Tenant     id.Tenant `db:"tenant_id"`
	TenantName string    `db:"tenant_name"` // empty: there is no such tenant
	Key        id.Key    `db:"key_id"`
	KeyName    string    `db:"key_name"` // empty: there is no such key
	Recent     int64     `db:"recent"`
	Before     int64     `db:"before"`
}

// Minutes is how often a tenant asked its quota at one gateway in each minute of an hour,
// whether the quota admitted it or not.
type Minutes struct {
	Tenant   id.Tenant
	Gateway  string         `db:"gateway"` // set by the store
	Hour     instant.Millis `db:"hour"`
	IsTest   bool           `db:"is_test"` // of test keys: a gateway serves one environment
	Attempts Attempts       `db:"attempts"`
}

// Attempts are numbers of the minutes of an hour.
type Attempts [60]int64

// Gap is a gateway process that did not store all its usage. Its usage before Since is complete.
// If the process has ended, usually its last three seconds are missing. If it dropped usage, it
// still runs: its usage between Since and NotedAt is incomplete.
type Gap struct {
	Gateway string         `db:"gateway" json:"gateway"`
	Cause   string         `db:"cause" json:"cause"` // killed, forgotten, fenced, unwritten or dropped
	Since   instant.Millis `db:"since" json:"since"`
	SeenAt  instant.Millis `db:"seen_at" json:"seenAt"`   // its last heartbeat, by the database's clock
	NotedAt instant.Millis `db:"noted_at" json:"notedAt"` // by the database's clock
}

// QuotaRecord is a tenant's usage as the gateway encodes it, stored so that in-process quotas
// survive a restart.
type QuotaRecord struct {
	QuotaName
	Record []byte
}

// TenantOutcome is how many requests of a tenant had one outcome.
type TenantOutcome struct {
	Tenant   id.Tenant `db:"tenant_id"`
	Outcome  string    `db:"outcome"`
	Requests int64     `db:"requests"`
}
