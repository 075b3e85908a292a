package app

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"petgate/shared/durable"
)

// idSuffixLen is long enough that two hosts with the same name do not get the same random suffix.
const idSuffixLen = 8

// gatewayID returns the gateway's name. If the setting is empty, the name is the host's name, the listen address, and a
// random suffix that is kept in a file next to the snapshot. So the gateway's name is the same after a restart, and
// different on another host of the same name.
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
		return name // there is no directory for the file
	}
	suffix, err := keptSuffix(c.Snapshot + ".id")
	if err != nil {
		log.Warn("the suffix of this gateway's ID cannot be kept, so another host of the same name would replace this gateway: set GATEWAY_ID",
			"gateway", name, "error", err.Error())
		return name
	}
	return name + "-" + suffix
}

// keptSuffix returns the suffix in the file. If there is no file, it writes one first.
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

// newSuffix writes the file. If another gateway did so first, newSuffix returns that suffix.
func newSuffix(path string) (string, error) {
	suffix := strings.ToLower(rand.Text()[:idSuffixLen])
	file, err := durable.Create(path + "." + suffix) // a name that no other process has
	if err != nil {
		return "", err
	}
	defer file.Close()
	if _, err := file.WriteString(suffix + "\n"); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	err = durable.Publish(file, path)
	if errors.Is(err, fs.ErrExist) {
		return keptSuffix(path)
	}
	return suffix, err
}
