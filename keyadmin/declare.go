package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"petgate/shared/operate"
	"petgate/shared/operate/declare"
)

type exportCommand struct{}

func (exportCommand) Run(ctx context.Context, a *app, operator operate.Operator) error {
	if a.asData() {
		return usageErrorf("export writes YAML: leave out --output")
	}
	return a.buffered(func(w io.Writer) error { return declare.Export(ctx, operator, w) })
}

type diffCommand struct {
	File string `arg:"" help:"The YAML document; - is standard input."`
	declare.Pruning
}

func (c *diffCommand) Run(ctx context.Context, a *app) error {
	_, changes, err := a.compareFile(ctx, c.File, c.Pruning)
	if err != nil {
		return err
	}
	return a.printChanges(changes.ChangesView)
}

type applyCommand struct {
	File   string `arg:"" help:"The YAML document; - is standard input."`
	DryRun bool   `help:"Only list the changes, like diff."`
	declare.Pruning
	asking
	waiting
}

func (c *applyCommand) Run(ctx context.Context, a *app) error {
	document, shown, err := a.compareFile(ctx, c.File, c.Pruning)
	if err != nil {
		return err
	}
	unseen := c.Yes && !c.DryRun // another writer may be faster, so the changes are printed when they are made
	if !unseen {
		if err := a.printChanges(shown.ChangesView); err != nil || c.DryRun {
			return err
		}
	}
	op := document.Prepare(a.operator, shown, c.Pruning, c.Yes)
	apply := op.Change
	op.Change = func(ctx context.Context) (operate.Outcome, error) {
		r, err := apply(ctx)
		if made, isMade := r.View.(declare.ChangesView); isMade && err == nil && unseen {
			err = a.printChanges(made)
		}
		r.View = nil // it was printed
		return r, err
	}
	return a.carryOut(ctx, op, c.asking, c.waiting)
}

// compareFile reads a document, opens the database, and finds what the document changes in it.
func (a *app) compareFile(
	ctx context.Context, path string, p declare.Pruning,
) (d declare.Document, c declare.Difference, err error) {
	if d, err = a.readFile(path); err != nil {
		return d, c, err
	}
	if err = a.open(ctx); err != nil {
		return d, c, err
	}
	c, err = d.Compare(ctx, a.operator, p, 0)
	return d, c, err
}

// readFile reads a document from a file or, for -, from standard input.
func (a *app) readFile(path string) (declare.Document, error) {
	if path == "-" {
		text, err := io.ReadAll(a.In)
		if err != nil {
			return declare.Document{}, fmt.Errorf("read standard input: %w", err)
		}
		return declare.Read("standard input", text)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return declare.Document{}, fmt.Errorf("read the document: %w", err)
	}
	return declare.Read(path, text)
}

// printChanges lists changes on standard output and what is left out on standard error.
func (a *app) printChanges(c declare.ChangesView) error {
	t := table{
		head:  []string{"ACTION", "KIND", "NAME", "KEY", "CHANGE"},
		spare: []string{"KIND"},
		none:  "There is nothing to change.",
	}
	err := printViews(a, c.Changes, t, func(v declare.ChangeView) []string {
		return []string{v.Action, v.Kind, v.Name, operate.OrDash(v.KeyID), v.Change}
	})
	if err != nil || len(c.LeftOut) == 0 {
		return err
	}
	a.note("%s", c.LeftOutText())
	for _, key := range c.LeftOut[:min(len(c.LeftOut), declare.ListedMax)] {
		a.note("  %s", key)
	}
	return nil
}
