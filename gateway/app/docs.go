package app

import (
	"fmt"
	"sync"

	"petgate/gateway/answers"
	"petgate/gateway/portal"
	"petgate/shared/keystore"
)

// docs is the documentation. It says which plans are in force, so it is replaced when one changes,
// before the gateway confirms the change.
type docs struct {
	pages answers.Pages

	mu     sync.Mutex
	portal *portal.Portal // nil: there is no documentation
	plans  []portal.Plan
}

// show replaces the documentation by that of another API.
func (d *docs) show(cfg portal.Config) {
	next := portal.New(cfg)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.portal = next
	d.pages.Set(next.Pages(d.plans))
}

// change notes the plans.
func (d *docs) change(plans []keystore.Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plans = nil
	for _, p := range plans {
		d.plans = append(d.plans, portal.Plan{Name: p.Name, Limits: p.Limits})
	}
	if d.portal != nil {
		d.pages.Set(d.portal.Pages(d.plans))
	}
}

// admit returns an error if a plan in force can never admit a request of an operation.
func (d *docs) admit(document keystore.Document) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.plans {
		if err := document.Admits(p.Limits); err != nil {
			return fmt.Errorf("plan %s: %w", p.Name, err)
		}
	}
	return nil
}
