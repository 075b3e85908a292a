package app

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// idSuffixLen is enough that two hosts of one name do not draw the same suffix.
const idSuffixLen = 8

// gatewayID is the name of this gateway in the database, for operators and in its snapshot. Unless it is set, it is the host's
// name, the listen address, and a random suffix that is kept in a file beside the snapshot. So it is the same after a
// restart, and another host of the same name has another one.
func (c *Config) gatewayID(log *slog.Logger) string {
	if c.ID != "" {
		return c.ID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "gateway"
	}
	name := host + "-" + c.Listen
	if c.Snapshot == "" {
		return name // There is no directory to keep anything in.
	}
	suffix, err := keptSuffix(c.Snapshot + ".id")
	if err != nil {
		log.Warn("this gateway's name cannot be kept, and another host of the same name would take its place: set GATEWAY_ID",
			"gateway", name, "error", err.Error())
		return name
	}
	return name + "-" + suffix
}

// keptSuffix returns what the file holds, and writes it first where there is none.
func keptSuffix(path string) (string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newSuffix(path)
	}
	if err != nil {
		return "", err
	}
	suffix := strings.TrimSpace(string(text))
	if len(suffix) != idSuffixLen {
		return "", fmt.Errorf("%s does not hold %d characters: remove it", path, idSuffixLen)
	}
	return suffix, nil
}

// newSuffix writes the whole file before it gets its name. If another gateway was first, its suffix holds.
func newSuffix(path string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	suffix := strings.ToLower(rand.Text()[:idSuffixLen])
	fresh := path + "." + suffix
	defer os.Remove(fresh)
	if err := os.WriteFile(fresh, []byte(suffix+"\n"), 0o644); err != nil {
		return "", err
	}
	if err := os.Link(fresh, path); errors.Is(err, fs.ErrExist) {
		return keptSuffix(path)
	} else if err != nil {
		return "", err
	}
	return suffix, nil
}
