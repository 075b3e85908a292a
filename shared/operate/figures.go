package operate

import (
	"context"
	"fmt"
	"math"
	"sync"

	"petgate/shared/keystore"
)

// Watch follows what gateways do, from one question to the next. It is not safe for concurrent use.
type Watch struct {
	last map[string]Live // by process: the same ID with another incarnation counts from 0 again
}

// Figures are what a gateway does now.
type Figures struct {
	Live
	Gateway keystore.Gateway
	Err     error // why there is no answer

	RequestRate, RefusedRate float64 // per second
	// ms within which half and 99 % of the requests had a response; nil: there were none
	P50, P99 *float64
	// the others are of this time; 0: there are none, because this is the first answer of a process
	Seconds float64

	was Live // the answer before, if there are rates
}

// Ask asks all gateways at once what they do, each for at most LiveWithin. An answer has at most n
// tenants.
func (w *Watch) Ask(ctx context.Context, gateways []keystore.Gateway, n int) []Figures {
	all := make([]Figures, len(gateways))
	var group sync.WaitGroup
	for i, g := range gateways {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, LiveWithin)
			defer cancel()
			all[i].Err = AskAdmin(ctx, g, fmt.Sprintf("/live?n=%d", n), &all[i].Live)
			if all[i].Err != nil {
				all[i].Live = Live{}
			}
			all[i].Gateway = g
		})
	}
	group.Wait()
	w.compare(all)
	return all
}

// compare computes the rates since the answers before, by each gateway's own clock.
func (w *Watch) compare(all []Figures) {
	next := make(map[string]Live, len(all))
	for i := range all {
		f := &all[i]
		if f.Err != nil {
			continue
		}
		process := f.Gateway.ID + "/" + f.Gateway.Incarnation
		next[process] = f.Live
		was := w.last[process]
		seconds := float64(f.Elapsed-was.Elapsed) / 1000
		if f.Since != was.Since || seconds <= 0 { // it has begun to count again
			continue
		}
		f.was, f.Seconds = was, seconds
		f.RequestRate = float64(f.Requests-was.Requests) / seconds
		f.RefusedRate = float64(f.Refused-was.Refused) / seconds
		f.P50, f.P99 = f.percentile(0.5), f.percentile(0.99)
	}
	w.last = next
}

// percentile returns the time in ms within which this part of the requests since the answer before
// had a response, by linear interpolation between two times of Within. nil: there were none.
func (f *Figures) percentile(part float64) *float64 {
	if len(f.Took) != len(f.Within) || len(f.Took) != len(f.was.Took) {
		return nil
	}
	took := make([]float64, len(f.Took))
	for i := range took {
		took[i] = float64(f.Took[i] - f.was.Took[i])
	}
	var below, from float64
	for i, upTo := range took {
		if rank := part * took[len(took)-1]; upTo >= rank && upTo > below {
			ms := math.Round(1e6*(from+(f.Within[i]-from)*(rank-below)/(upTo-below))) / 1000
			return &ms
		}
		below, from = upTo, f.Within[i]
	}
	return nil
}

// TenantFigures are what a tenant does now at all gateways together. Since, Requests and Refused of
// LiveTenant are not set.
type TenantFigures struct {
	LiveTenant
	RequestRate, RefusedRate float64 // per second
	// the rates are means over this time, the longest of all gateways; 0: there are none
	Seconds float64

	isFresh bool // the figures of the quota are of a gateway that has decided since the answer before
}

// SumTenants adds up what gateways say about each tenant, by ID.
func SumTenants(all []Figures) map[string]*TenantFigures {
	tenants := map[string]*TenantFigures{}
	for _, f := range all {
		before := make(map[string]LiveTenant, len(f.was.Tenants))
		for _, t := range f.was.Tenants {
			before[t.ID] = t
		}
		for _, t := range f.Tenants {
			sum := tenants[t.ID]
			if sum == nil {
				sum = &TenantFigures{LiveTenant: LiveTenant{ID: t.ID, Plan: t.Plan, Limits: t.Limits}}
				tenants[t.ID] = sum
			}
			old, isListed := before[t.ID]
			if t.Since > f.was.Elapsed { // all its requests came after the answer before
				old, isListed = LiveTenant{}, true
			}
			var requests int64
			if f.Seconds > 0 && isListed {
				requests = t.Requests - old.Requests
				sum.RequestRate += float64(requests) / f.Seconds
				sum.RefusedRate += float64(t.Refused-old.Refused) / f.Seconds
				sum.Seconds = max(sum.Seconds, f.Seconds)
			}
			if isFresh := requests > 0; isFresh && !sum.isFresh {
				sum.isFresh, sum.MinuteUsed, sum.DayUsed, sum.MonthUsed = true, t.MinuteUsed, t.DayUsed, t.MonthUsed
			} else if isFresh == sum.isFresh {
				sum.MinuteUsed, sum.DayUsed = max(sum.MinuteUsed, t.MinuteUsed), max(sum.DayUsed, t.DayUsed)
				sum.MonthUsed = max(sum.MonthUsed, t.MonthUsed)
			}
		}
	}
	return tenants
}
