package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"petgate/shared/keystore"
	"petgate/shared/operate"
	"petgate/shared/service"
)

// asking is the flag of commands that take something away.
type asking struct {
	Yes bool `short:"y" help:"Do not ask for confirmation. Needed where there is no terminal to ask at."`
}

// waiting is the flag of commands whose change gateways have to apply.
type waiting struct {
	Wait patience `placeholder:"AGE" help:"How long to wait until all gateways have applied the change: 0 = check once (default: 5s, or 1.5s if only gateways are missing that have been silent for 10 s)."`
}

// change is a command for a change that operate prepares from its arguments.
type change[A operate.Preparer] struct {
	Arguments A `embed:""`
	waiting
}

// BadSettings checks how the arguments fit together.
func (c *change[A]) BadSettings() service.BadSettings { return badArguments(c.Arguments) }

func (c *change[A]) Run(ctx context.Context, a *app, operator operate.Operator) error {
	return a.change(ctx, operator, c.Arguments, asking{}, c.waiting)
}

// asked is a change that may take something away.
type asked[A operate.Preparer] struct {
	Arguments A `embed:""`
	asking
	waiting
}

// BadSettings checks how the arguments fit together.
func (c *asked[A]) BadSettings() service.BadSettings { return badArguments(c.Arguments) }

func (c *asked[A]) Run(ctx context.Context, a *app, operator operate.Operator) error {
	return a.change(ctx, operator, c.Arguments, c.asking, c.waiting)
}

func (a *app) change(ctx context.Context, operator operate.Operator, of operate.Preparer, asked asking, waits waiting) error {
	op, err := of.Prepare(ctx, operator)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, operation{Operation: op, yes: asked.Yes, wait: waits.Wait})
}

func badArguments(arguments any) (bad service.BadSettings) {
	if checker, ok := arguments.(operate.Checker); ok {
		err := checker.Check()
		bad.Require(err == nil, "", "%v", err)
	}
	return bad
}

// confirmation describes a change to wait for.
type confirmation struct {
	change  keystore.Change
	wait    patience
	laggard string // what a gateway that has not applied the change may do: "may still accept this key"
	done    string // what to say before waiting; may be empty
}

// unconfirmedError is a change that was made, but that a gateway may not have applied: exit 3.
type unconfirmedError struct{ text string }

func (e unconfirmedError) Error() string { return e.text }

// confirm waits until every registered gateway has applied a change. keyadmin also waits if nothing had to change: the command may
// repeat an earlier one that was not confirmed.
func (a *app) confirm(ctx context.Context, c confirmation) error {
	// The change is made. An interrupt only ends the wait; the gateways that have not confirmed must still be named.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.done != "" {
		a.note("%s", c.done)
	}
	return a.confirmBy(ctx, a.store, c)
}

func (a *app) confirmBy(ctx context.Context, r operate.Registry, c confirmation) error {
	wait := c.wait
	waiter := operate.Waiter{Registry: r, Clock: a.Clock, Sleep: a.Sleep}
	if a.ErrTerminal {
		waiter.Say = func(p operate.Progress) { a.note("%s", p.Waiting(wait.Limit())) }
	}
	p := waiter.Wait(ctx, c.change, wait)
	text := p.Text(c.laggard)
	switch {
	case p.IsConfirmed():
		a.note("%s", text)
		return nil
	case p.Err != nil:
		return unconfirmedError{text}
	}
	return unconfirmedError{text + operate.Either(p.IsHopeless, " ", "\n") + advice(p)}
}

// advice says what to do about the laggards.
func advice(p operate.Progress) string {
	return p.Advice(func(fenced time.Duration) string {
		return ": repeat the command with --wait " + (fenced + time.Second).Round(time.Second).String() + " to see the change confirmed."
	}, "; check the LAG column of `keyadmin gateway list`.")
}

// errDeclined is returned when the operator does not confirm.
var errDeclined = errors.New("not confirmed; nothing was changed")

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
	a.store.Seek(o.wait.Limit())
	r, err := o.Change(ctx)
	var unknown *keystore.UnknownError
	if errors.As(err, &unknown) {
		return a.unknown(r, unknown)
	}
	if err != nil {
		return err
	}
	done := r.Done
	made, isKey := r.View.(operate.KeyView)
	_, isRotation := r.View.(operate.Rotation)
	switch {
	case o.print != nil:
		done, err = "", o.print(r)
	case isKey && made.Token != "":
		done, err = "", a.printCreated(r, made.Owner)
	case isRotation:
		done, err = "", a.printRotated(r)
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
	if t, isTenant := r.View.(operate.TenantView); isTenant && !r.Ended {
		a.noteQuota(t)
	}
	return err
}

// unknown says how to find out whether a change was made, after its answer was lost. It prints the token that the change may have stored:
// otherwise it would be lost.
func (a *app) unknown(r operate.Outcome, err *keystore.UnknownError) error {
	look := "keyadmin audit --since 1h --kind " + err.Kind
	switch {
	case !err.Key.IsZero():
		look += " --key " + err.Key.String()
	case !err.Tenant.IsZero():
		look += " --tenant " + err.Tenant.String()
	}
	text := "may have been made: the answer to its commit was lost. " + err.Error() + "\nOnce the database answers, this lists the change if it was made: " + look
	if _, token := tokenOf(r.View); token != "" {
		if err := a.printToken(r.View); err != nil {
			return err
		}
		text += "\nThe token on standard output is valid only then."
	}
	return unconfirmedError{text}
}
