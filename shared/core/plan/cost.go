package plan

import "fmt"

// CostMax is the largest cost of a request, in units.
const CostMax = 1000

// Admit returns an error that names the operation and the limit if a request of this cost can never be admitted.
func (l Limits) Admit(operation string, cost int64) error {
	for policy, limit := range l.Set() {
		if cost > limit {
			return fmt.Errorf("a request of operation %s costs %d, so a %s limit of %d never admits it: raise the limit, or lower its x-cost",
				operation, cost, policy, limit)
		}
	}
	return nil
}
