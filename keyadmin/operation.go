package main

import (
	"context"

	"petgate/shared/operate"
)

// operation is what a command that changes something does. carryOut asks, makes the change, prints the outcome and waits for
// the gateways, in this order.
type operation struct {
	operate.Operation
	yes   bool // the answer was given on the command line
	wait  patience
	table func(operate.Outcome) table  // printed for people; nil: nothing is printed for them
	print func(operate.Outcome) error  // prints the outcome, right after the change, and says what was done; nil: carryOut does
	add   func(operate.Outcome) string // returns what to say after the sentence of the outcome; may be nil
	after func(operate.Outcome)        // says more after the wait; may be nil
}

func (a *app) carryOut(ctx context.Context, o operation) error {
	if o.Question != "" && (a.atTerminal() || !o.Harmless) {
		if err := a.ask(o.yes, o.Question); err != nil {
			return err
		}
	}
	r, err := o.Change(ctx)
	if err != nil {
		return err
	}
	done := r.Done
	switch {
	case o.print != nil:
		done, err = "", o.print(r)
	case o.table != nil:
		err = a.print(r.View, o.table(r))
	case a.asData() && r.View != nil:
		err = a.print(r.View, table{})
	}
	if err != nil {
		return err
	}
	if o.add != nil {
		done += o.add(r)
	}
	err = a.confirm(ctx, confirmation{
		change: r.Change, wait: o.wait, laggard: o.Laggard, done: done,
	})
	if o.after != nil {
		o.after(r)
	}
	return err
}
