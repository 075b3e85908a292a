package operate

import (
	"context"
	"fmt"

	"petgate/shared/core/plan"
)

// admitsCosts returns an error if any of the limits can never admit a request of an operation that a gateway serves.
func (o Operator) admitsCosts(ctx context.Context, all ...plan.Limits) error {
	gateways, err := o.Store.Gateways(ctx)
	if err != nil {
		return err
	}
	for _, g := range gateways {
		for _, limits := range all {
			if err := g.Document.Admits(limits); err != nil {
				return fmt.Errorf("gateway %s: %w", g.ID, err)
			}
		}
	}
	return nil
}
