package main

import (
	"context"

	"petgate/shared/keystore"
)

// operation is what a command that changes something does. carryOut asks, makes the change, prints the outcome and waits for
// the gateways, in this order.
type operation struct {
	question string // empty: it does not ask
	yes      bool   // the answer was given on the command line
	harmless bool   // without a terminal it needs no --yes
	wait     patience
	laggard  string // what a gateway that has not applied the change may do: "may still accept this key"
	alone    string // what to add if no gateway is registered; may be empty
	change   func() (outcome, error)
}

// outcome is what an operation has changed.
type outcome struct {
	change keystore.Change
	view   any          // printed as JSON; nil: nothing is printed
	table  table        // printed instead, where it has rows
	print  func() error // prints instead of view and table, right after the change
	done   string       // said before the wait; may be empty
	after  func()       // says more after the wait; may be nil
}

func (a *app) carryOut(ctx context.Context, o operation) error {
	if o.question != "" && (a.atTerminal() || !o.harmless) {
		if err := a.ask(o.yes, o.question); err != nil {
			return err
		}
	}
	r, err := o.change()
	if err != nil {
		return err
	}
	switch {
	case r.print != nil:
		err = r.print()
	case a.asData() && r.view != nil, len(r.table.rows) > 0:
		err = a.print(r.view, r.table)
	}
	if err != nil {
		return err
	}
	err = a.confirm(ctx, confirmation{
		change: r.change, wait: o.wait, laggard: o.laggard, done: r.done, alone: o.alone,
	})
	if r.after != nil {
		r.after()
	}
	return err
}
