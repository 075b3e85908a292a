package operate

import (
	"context"
	"fmt"

	"petgate/shared/core/plan"
	"petgate/shared/keystore"
)

// Costs are the registered gateways, each with what requests cost there.
type Costs []keystore.Gateway

// Costs reads what requests cost.
func (o Operator) Costs(ctx context.Context) (Costs, error) { return o.Store.Gateways(ctx) }

// Admit returns an error if any of the limits can never admit a request of an operation that a
// gateway serves.
func (c Costs) Admit(all ...plan.Limits) error {
	for _, g := range c {
		for _, limits := range all {
			if err := g.Document.Admits(limits); err != nil {
				return fmt.Errorf("gateway %s: %w", g.ID, err)
			}
		}
	}
	return nil
}

// admitsCosts is Costs.Admit. Its error is a keystore.ErrInvalid.
func (o Operator) admitsCosts(ctx context.Context, all ...plan.Limits) error {
	costs, err := o.Costs(ctx)
	if err != nil {
		return err
	}
	if err = costs.Admit(all...); err != nil {
		err = fmt.Errorf("%w: %w", keystore.ErrInvalid, err)
	}
	return err
}
