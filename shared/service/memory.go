package service

import (
	"io/fs"
	"log/slog"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// The part of a container's memory that Go may use. The rest is for memory that Go does not count but the container does, above
// all the kernel's buffers of sockets.
const (
	goMemoryParts = 4
	memoryParts   = 5
)

// limitMemory makes the garbage collector run more often when the process comes near the memory limit of its container. Without
// it, the kernel would kill the process although much of its memory is garbage. If GOMEMLIMIT is set, the operator decides. root
// is the file system.
func limitMemory(root fs.FS, log *slog.Logger) {
	container := containerMemory(root)
	if os.Getenv("GOMEMLIMIT") != "" || container == 0 {
		return
	}
	limit := container / memoryParts * goMemoryParts
	debug.SetMemoryLimit(limit)
	log.Info("Go's memory limit is a part of the container's: set GOMEMLIMIT for another one",
		"limitBytes", limit, "containerBytes", container)
}

// containerMemory returns the lowest memory limit of the process's control groups in bytes, or 0 if there is none. It reads
// versions 1 and 2 (cgroups(7)). In a container, the path in /proc/self/cgroup may be the host's: only its last parts, or none of
// them, exist below the mount.
func containerMemory(root fs.FS) (lowest int64) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		mount, file := "sys/fs/cgroup", "memory.max"
		if controllers != "" { // version 1
			if !slices.Contains(strings.Split(controllers, ","), "memory") {
				continue
			}
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for dir := path.Join(mount, path.Clean("/"+group)); ; dir = path.Dir(dir) {
			if limit := readLimit(root, path.Join(dir, file)); limit != 0 && (lowest == 0 || limit < lowest) {
				lowest = limit
			}
			if len(dir) <= len(mount) {
				break
			}
		}
	}
	return lowest
}

// unlimitedBytes is less than what version 1 gives for no limit: the largest int64, rounded down to pages.
const unlimitedBytes = 1 << 60

func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" means that there is no limit
	if err != nil || n >= unlimitedBytes || n < 0 {
		return 0
	}
	return n
}
