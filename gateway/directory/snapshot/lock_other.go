//go:build !unix

package snapshot

import (
	"errors"
	"os"
)

func lockFile(*os.File) error {
	return errors.New("this system has no file locks that end with their process")
}
