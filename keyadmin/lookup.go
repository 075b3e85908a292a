package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"petgate/shared/core/instant"
	"petgate/shared/database"
	"petgate/shared/keystore"
	"petgate/shared/operate"
)

// open opens the database if the command line is valid. Otherwise it returns the usage error before
// anything is tried.
func (a *app) open(ctx context.Context) error {
	if err := a.openWith(database.Open); err != nil {
		return err
	}
	return a.operator.Store.CheckSchema(ctx)
}

// openWith opens the database without a look at its tables.
func (a *app) openWith(open func(url string) (*database.DB, error)) error {
	url, err := a.databaseURL()
	if err != nil {
		return err
	}
	if a.db, err = open(url); err != nil {
		return explainOpen(url, err)
	}
	a.operator = operate.Operator{Store: keystore.New(a.db, a.Clock, a.Random, a.actor()), Clock: a.Clock}
	a.operator.Store.Seek(operate.UsualWait)
	return nil
}

// explainOpen turns an invalid URL into a usage error, and adds the full path to the error of a
// missing file.
func explainOpen(url string, err error) error {
	if errors.Is(err, database.ErrURL) {
		return usageErrorf("%v", err)
	}
	_, path, _ := strings.Cut(url, ":")
	absolute, absErr := filepath.Abs(path)
	if errors.Is(err, database.ErrNoFile) && absErr == nil && !filepath.IsAbs(path) {
		return fmt.Errorf("%w\nThe path is relative to the current directory, so keyadmin looked for %s. "+
			"Set $DATABASE_URL to use another database", err, absolute)
	}
	return err
}

// reference is an argument that may be left out: a tenant's ID or name, or a key's ID. An empty
// argument is not left out: it is mostly a variable of a shell that is not set.
type reference string

func (r *reference) UnmarshalText(text []byte) error {
	*r = reference(text)
	if len(text) == 0 {
		return errors.New("it is empty: give an ID or a name, or leave it out")
	}
	return nil
}

func (a *app) now() instant.Millis { return instant.Of(a.Clock()) }

// explainMissing adds to an error that something does not exist the command that lists what does.
func explainMissing(err error) error {
	var missing operate.NotFoundError
	if !errors.As(err, &missing) {
		return err
	}
	return fmt.Errorf("there is no %s %q (`keyadmin %s` shows all)", missing.Noun, missing.Name,
		operate.Either(missing.Noun == "lost refusal", "gateway lost", missing.Noun+" list"))
}
