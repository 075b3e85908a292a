package operate

import (
	"context"
	"maps"
	"slices"
	"time"

	"petgate/shared/core/apikey"
	"petgate/shared/core/id"
	"petgate/shared/core/instant"
	"petgate/shared/keystore/usage"
)

// MinuteView is what a tenant did in one minute, as JSON; scripts rely on its fields.
type MinuteView struct {
	Start    string `json:"start"`
	Attempts int64  `json:"attempts"` // requests that asked for a part of the quota, whether they got it or not

	At instant.Millis `json:"-"` // Start
}

// Minutes lists the minutes in which a tenant had attempts with its keys in an environment, at all
// gateways together, in the order of time. It begins with the minute of since, and ends before
// until. Gateways store minutes once a minute, and they are kept for 35 days.
func (o Operator) Minutes(
	ctx context.Context, tenant id.Tenant, in apikey.Environment, since, until instant.Millis,
) ([]MinuteView, error) {
	hours, err := usage.Of(o.Store).Minutes(ctx, tenant, since)
	if err != nil {
		return nil, err
	}
	sums := map[instant.Millis]int64{}
	for _, h := range hours {
		if h.IsTest != (in == apikey.Test) {
			continue
		}
		for i, n := range h.Attempts {
			at := h.Hour.Add(time.Duration(i) * time.Minute)
			if n > 0 && at >= since.Truncate(time.Minute) && at < until {
				sums[at] += n
			}
		}
	}
	return ViewsOf(slices.Sorted(maps.Keys(sums)), func(at instant.Millis) MinuteView {
		return MinuteView{Start: at.String(), Attempts: sums[at], At: at}
	}), nil
}
