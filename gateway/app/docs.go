package app

import (
	"fmt"
	"sync"

	"petgate/gateway/answers"
	"petgate/gateway/portal"
	"petgate/shared/keystore"
)

// docs is the documentation. It says which plans are in force, so it is written again when one changes: before the gateway confirms
// the change, and never by a request.
type docs struct {
	pages answers.Pages

	mu     sync.Mutex
	portal *portal.Portal // nil: there is no documentation
	plans  []portal.Plan
}

// show makes the documentation of an API.
func (d *docs) show(cfg portal.Config) error {
	made, err := portal.New(cfg)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.portal = made
	return d.write()
}

// change notes the plans.
func (d *docs) change(plans []keystore.Plan) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plans = nil
	for _, p := range plans {
		d.plans = append(d.plans, portal.Plan{Name: p.Name, Limits: p.Limits})
	}
	return d.write()
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

func (d *docs) write() error {
	if d.portal == nil {
		return nil
	}
	pages, err := d.portal.Pages(d.plans)
	if err == nil {
		d.pages.Set(pages)
	}
	return err
}
