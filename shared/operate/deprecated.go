package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"

	"petgate/shared/keystore/usage"
)

// DeprecatedView is a key that calls a deprecated operation, as JSON; scripts rely on its fields.
type DeprecatedView struct {
	Operation    string `json:"operation"`
	DeprecatedAt string `json:"deprecatedAt"`
	SunsetAt     string `json:"sunsetAt,omitempty"` // empty: it does not end
	DaysLeft     *int64 `json:"daysLeft,omitempty"` // until then; 0: less than a day, or it has ended
	Successor    string `json:"successor,omitempty"`
	TenantID     string `json:"tenantId"`
	Tenant       string `json:"tenant"` // its name
	Key          string `json:"key"`    // its ID
	KeyName      string `json:"keyName"`
	Requests     int64  `json:"requests"` // in the last seven days
	Before       int64  `json:"before"`   // in the seven days before
}

// Trend compares the requests of the last seven days with those of the seven days before.
func (v DeprecatedView) Trend() string {
	switch {
	case v.Before == 0:
		return "new"
	case v.Requests == 0:
		return "stopped"
	}
	change := (v.Requests - v.Before) * 100 / v.Before
	return Either(change > 0, "+", "") + humanize.Comma(change) + " %"
}

// EndsIn says in how many days the operation ends.
func (v DeprecatedView) EndsIn() string {
	if v.DaysLeft == nil {
		return "never"
	}
	return Plural(int(*v.DaysLeft), "day")
}

// ViewDeprecated returns the keys that called a deprecated operation within the last fourteen days,
// and the IDs of the deprecated operations. It asks a gateway for the operations: if none answers,
// that is an error.
func (o Operator) ViewDeprecated(ctx context.Context) (views []DeprecatedView, operations []string, err error) {
	deprecated, err := o.deprecated(ctx)
	if err != nil {
		return nil, nil, err
	}
	operations, now := ViewsOf(deprecated, func(op AboutOperation) string { return op.ID }), o.Now()
	rows, err := usage.Of(o.Store).OperationUsage(ctx, operations, now.Add(-14*day), now.Add(-7*day))
	if err != nil {
		return nil, nil, err
	}
	views = make([]DeprecatedView, 0, len(rows))
	for _, r := range rows {
		op := deprecated[slices.IndexFunc(deprecated, func(op AboutOperation) bool { return op.ID == r.Operation })]
		v := DeprecatedView{
			Operation:    r.Operation,
			DeprecatedAt: op.DeprecatedAt.String(),
			SunsetAt:     op.SunsetAt.String(),
			Successor:    op.Successor,
			TenantID:     r.Tenant.String(),
			Tenant:       cmp.Or(r.TenantName, r.Tenant.String()),
			Key:          r.Key.String(),
			KeyName:      r.KeyName,
			Requests:     r.Recent, Before: r.Before,
		}
		if op.SunsetAt != 0 {
			left := max(0, int64(op.SunsetAt.Sub(now)/day))
			v.DaysLeft = &left
		}
		views = append(views, v)
	}
	return views, operations, nil
}

// deprecated asks the gateways which operations are deprecated. One answer is enough.
func (o Operator) deprecated(ctx context.Context) ([]AboutOperation, error) {
	gateways, err := o.Store.Gateways(ctx)
	if err != nil {
		return nil, err
	}
	silentLast(gateways)
	err = errors.New("no gateway is registered")
	isCurrent := func(op AboutOperation) bool { return !op.IsDeprecated && op.DeprecatedAt == 0 && op.SunsetAt == 0 }
	for _, g := range gateways {
		var answer About
		if answer, err = AskAbout(ctx, g); err == nil {
			return slices.DeleteFunc(answer.Operations, isCurrent), nil
		}
	}
	return nil, fmt.Errorf("only a gateway knows which operations are deprecated: %w", err)
}
