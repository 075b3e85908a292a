package usage

import (
	"time"

	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	stored "petgate/shared/keystore/usage"
)

const (
	rowsMax = 5000 // in one batch, so that transactions are short

	// The largest number of rows that wait for the database, about 50 MB. Further rows are dropped.
	backlogRowsMax = 200_000
	// The largest number of tenants and hours whose minutes wait for the database, about 15 MB.
	// Further minutes are dropped.
	backlogMinutesMax = 50_000
)

// backlog is what a process has counted and the database perhaps lacks. The file has it too, so its
// fields are exported.
type backlog struct {
	Rows     map[stored.Row]sum // the keys of the map have no numbers
	Minutes  map[tenantHour]*[60]int64
	Batch    int64  // the last batch's number
	Sent     *batch // the last batch, until the database has certainly stored it
	Dropping bool   // requests were dropped after the last batch was made
}

// sum has the numbers of a row.
type sum struct {
	Requests  int64
	MoreUnits int64
	LastAt    instant.Millis
}

type tenantHour struct {
	Tenant id.Tenant
	Hour   instant.Millis
	IsTest bool
}

type batch struct {
	Rows    []stored.Row
	Minutes []stored.Minutes
	Dropped bool // requests were dropped since the batch before
}

func newBacklog() backlog {
	return backlog{Rows: map[stored.Row]sum{}, Minutes: map[tenantHour]*[60]int64{}}
}

// isEmpty reports whether the database certainly has all.
func (b *backlog) isEmpty() bool { return b.Sent == nil && len(b.Rows) == 0 && len(b.Minutes) == 0 }

func (b *backlog) add(request Request, n int64, now instant.Millis, m *metrics) {
	hour := request.At.Truncate(time.Hour)
	row := stored.Row{
		Tenant:    request.Tenant,
		Key:       request.Key,
		Operation: request.Operation,
		Outcome:   request.Outcome,
		Charged:   request.Charged,
		IsTest:    request.IsTest,
		Hour:      hour,
	}
	moreUnits := int64(0)
	if request.Charged {
		moreUnits = n * int64(max(1, request.Cost)-1)
	}
	if has, isKnown := b.Rows[row]; isKnown || len(b.Rows) < backlogRowsMax {
		b.Rows[row] = sum{Requests: has.Requests + n, MoreUnits: has.MoreUnits + moreUnits, LastAt: now}
	} else {
		m.droppedRequests.Add(float64(n))
		b.Dropping = true
	}
	if request.Metered {
		b.addAttempts(request, hour, n, m)
	}
}

func (b *backlog) addAttempts(request Request, hour instant.Millis, n int64, m *metrics) {
	at := tenantHour{request.Tenant, hour, request.IsTest}
	attempts := b.Minutes[at]
	if attempts == nil {
		if len(b.Minutes) >= backlogMinutesMax {
			m.droppedAttempts.Add(float64(n))
			return
		}
		attempts = new([60]int64)
		b.Minutes[at] = attempts
	}
	attempts[request.At.Sub(hour)/time.Minute] += n
}

// next returns the batch to send, or nil. It is the last batch again if that may not have been
// stored.
func (b *backlog) next(withMinutes bool) *batch {
	if b.Sent != nil || len(b.Rows) == 0 && (!withMinutes || len(b.Minutes) == 0) {
		return b.Sent
	}
	b.Batch++
	b.Sent = &batch{Dropped: b.Dropping}
	b.Dropping = false
	b.Sent.Rows = moved(b.Rows, func(row stored.Row, has sum) stored.Row {
		row.Requests, row.MoreUnits, row.LastAt = has.Requests, has.MoreUnits, has.LastAt
		return row
	})
	if withMinutes {
		b.Sent.Minutes = moved(b.Minutes, func(at tenantHour, attempts *[60]int64) stored.Minutes {
			return stored.Minutes{Tenant: at.Tenant, Hour: at.Hour, IsTest: at.IsTest, Attempts: *attempts}
		})
	}
	return b.Sent
}

// moved moves up to rowsMax rows out of a backlog.
func moved[K comparable, V, R any](from map[K]V, row func(K, V) R) (rows []R) {
	for key, value := range from {
		if len(rows) == rowsMax {
			break
		}
		rows = append(rows, row(key, value))
		delete(from, key)
	}
	return rows
}
