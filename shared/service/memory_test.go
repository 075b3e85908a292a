package service

import (
	"bytes"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
)

func TestContainerMemory(t *testing.T) {
	f := func(name string, want int64, files ...string) {
		t.Helper()
		root := fstest.MapFS{}
		for i := 0; i < len(files); i += 2 {
			root[files[i]] = &fstest.MapFile{Data: []byte(files[i+1] + "\n")}
		}
		if got := containerMemory(root); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	const self, v2, v1 = "proc/self/cgroup", "sys/fs/cgroup/", "sys/fs/cgroup/memory/"
	f("not Linux", 0)
	f("version 2", 512<<20, self, "0::/", v2+"memory.max", "536870912")
	f("version 2, no limit", 0, self, "0::/", v2+"memory.max", "max")
	f("version 2, a parent has the lower limit", 100, self, "0::/pod/c", v2+"pod/memory.max", "100", v2+"pod/c/memory.max", "200")
	f("version 2, outside of the mount", 300, self, "0::/../other", v2+"memory.max", "300")
	f("version 1", 200, self, "3:cpu,cpuacct:/c\n2:hugetlb,memory:/c", v1+"c/memory.limit_in_bytes", "200")
	f("version 1, a path of the host", 200, self, "9:memory:/docker/c", v1+"memory.limit_in_bytes", "200")
	f("version 1, no limit", 0, self, "9:memory:/", v1+"memory.limit_in_bytes", "9223372036854771712")
	f("both versions", 200, self, "9:memory:/c\n0::/c", v1+"c/memory.limit_in_bytes", "200")
}

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	root := fstest.MapFS{
		"proc/self/cgroup":         {Data: []byte("0::/\n")},
		"sys/fs/cgroup/memory.max": {Data: []byte("10000000000\n")},
	}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	t.Setenv("GOMEMLIMIT", "1GiB")
	if limitMemory(root, log); debug.SetMemoryLimit(-1) != before || out.Len() != 0 {
		t.Errorf("GOMEMLIMIT is overruled: %s", &out)
	}
	t.Setenv("GOMEMLIMIT", "")
	if limitMemory(root, log); debug.SetMemoryLimit(-1) != 8_000_000_000 || !strings.Contains(out.String(), "limitBytes=8000000000") {
		t.Errorf("the limit is %d, and the log says %q", debug.SetMemoryLimit(-1), &out)
	}
}
