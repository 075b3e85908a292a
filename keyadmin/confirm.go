package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
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
	Wait operate.Delay `placeholder:"AGE" help:"How long to wait until all gateways have applied the change: 0 = check once (default: 5s)."`
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

func badArguments(arguments any) (bad service.BadSettings) {
	if checker, ok := arguments.(operate.Checker); ok {
		err := checker.Check()
		bad.Require(err == nil, "", "%v", err)
	}
	return bad
}

func (a *app) change(
	ctx context.Context, operator operate.Operator, of operate.Preparer, sure asking, waits waiting,
) error {
	op, err := of.Prepare(ctx, operator)
	if err != nil {
		return err
	}
	return a.carryOut(ctx, op, sure, waits)
}

// carryOut asks, makes the change, says and prints what was changed, and waits for the gateways, in
// this order.
func (a *app) carryOut(ctx context.Context, op operate.Operation, sure asking, waits waiting) error {
	if op.Question != "" && (a.atTerminal() || !op.Harmless) {
		if err := a.ask(sure.Yes, op.Question); err != nil {
			return err
		}
	}
	a.operator.Store.Seek(waits.Wait.Or(operate.UsualWait))
	r, err := op.Change(ctx)
	var unknown *keystore.UnknownError
	if errors.As(err, &unknown) {
		return a.unknown(r, unknown)
	}
	if err != nil {
		return err
	}
	// The change is made. From here on, an interrupt only ends the wait: the gateways that have not
	// confirmed must still be named.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if text := strings.TrimSpace(r.Done + r.Hint); text != "" {
		a.note("%s", text)
	}
	key, isNew := r.NewKey()
	switch {
	case isNew:
		err = a.printToken(r.View, key.Token)
	case a.asData() && r.View != nil:
		err = a.print(r.View, table{})
	case r.Line != "" && !a.asData():
		err = a.print(nil, table{rows: [][]string{{r.Line}}})
	}
	if err != nil {
		return err
	}
	return a.confirm(ctx, a.operator.Store, r.Change, op.Laggard, waits.Wait)
}

// unconfirmedError is a change that was made, but that a gateway may not have applied: exit 3.
type unconfirmedError struct{ text string }

func (e unconfirmedError) Error() string { return e.text }

// confirm waits until every registered gateway has applied a change. keyadmin also waits if nothing
// had to change: the command may repeat an earlier one that was not confirmed.
func (a *app) confirm(
	ctx context.Context, r operate.Registry, change keystore.Change, laggard string, wait operate.Delay,
) error {
	p := operate.Wait(ctx, r, change, wait.Or(operate.UsualWait), a.Clock, a.Sleep)
	text := p.Text(laggard)
	switch {
	case p.IsConfirmed():
		a.note("%s", text)
		return nil
	case p.Err != nil:
		return unconfirmedError{text}
	}
	return unconfirmedError{text + "\n" + p.Advice(func(fenced time.Duration) string {
		wait := (fenced + time.Second).Round(time.Second)
		return ": repeat the command with --wait " + wait.String() + " to see the change confirmed."
	}, "; check the LAG column of `keyadmin gateway list`.")}
}

// errDeclined is returned when the operator does not confirm.
var errDeclined = errors.New("not confirmed; nothing was changed")

// unknown says how to find out whether a change was made, after its answer was lost. It prints the
// token that the change may have stored: otherwise it would be lost.
func (a *app) unknown(r operate.Outcome, err *keystore.UnknownError) error {
	look := "keyadmin audit --since 1h --kind " + err.Kind
	switch {
	case !err.Key.IsZero():
		look += " --key " + err.Key.String()
	case !err.Tenant.IsZero():
		look += " --tenant " + err.Tenant.String()
	}
	text := "may have been made: the answer to its commit was lost. " + err.Error() + "\nOnce the database " +
		"answers, this lists the change if it was made: " + look
	if key, isNew := r.NewKey(); isNew {
		if err := a.printToken(r.View, key.Token); err != nil {
			return err
		}
		text += "\nThe token on standard output is valid only then."
	}
	return unconfirmedError{text}
}
