package cgroup

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// tree makes files, "path=text" each.
func tree(t *testing.T, files []string) string {
	t.Helper()
	dir, made := t.TempDir(), fstest.MapFS{}
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		made[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	if err := os.CopyFS(dir, made); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		files       []string
		limit, used int64
		cpus        float64
	}{
		"none": {},
		"version 2, in a container": {[]string{"proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=4294967296",
			"sys/fs/cgroup/memory.current=1000", "sys/fs/cgroup/cpu.max=250000 100000"}, 4 << 30, 1000, 2.5},
		"version 2, the least on the way": {[]string{"proc/self/cgroup=0::/a/b", "sys/fs/cgroup/a/b/memory.max=max",
			"sys/fs/cgroup/a/b/cpu.max=max 100000", "sys/fs/cgroup/a/memory.max=1000",
			"sys/fs/cgroup/a/memory.current=7", "sys/fs/cgroup/memory.max=2000",
			"sys/fs/cgroup/a/cpu.max=100000 100000"}, 1000, 7, 1},
		"version 1": {[]string{"proc/self/cgroup=4:memory:/d\n3:cpu,cpuacct:/d",
			"sys/fs/cgroup/memory/d/memory.limit_in_bytes=5000", "sys/fs/cgroup/memory/d/memory.usage_in_bytes=50",
			"sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_quota_us=300000",
			"sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_period_us=100000"}, 5000, 50, 3},
		"version 1, no limit": {files: []string{"proc/self/cgroup=4:memory:/\n3:cpu:/",
			"sys/fs/cgroup/memory/memory.limit_in_bytes=9223372036854771712", "sys/fs/cgroup/cpu/cpu.cfs_quota_us=-1",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us=100000"}},
		"a group above the root": {files: []string{"proc/self/cgroup=0::/../../x"}},
		"version 2, pages of files": {[]string{"proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=1000",
			"sys/fs/cgroup/memory.current=990",
			"sys/fs/cgroup/memory.stat=anon 100\nactive_file 90\ninactive_file 800\ntotal_inactive_file 1"}, 1000, 190,
			0},
		"version 1, pages of files": {[]string{"proc/self/cgroup=4:memory:/d",
			"sys/fs/cgroup/memory/d/memory.limit_in_bytes=1000", "sys/fs/cgroup/memory/d/memory.usage_in_bytes=990",
			"sys/fs/cgroup/memory/d/memory.stat=inactive_file 1\ntotal_inactive_file 900"}, 1000, 90, 0},
		"more in use than allowed": {[]string{"proc/self/cgroup=0::/", "sys/fs/cgroup/memory.max=1000",
			"sys/fs/cgroup/memory.current=1100", "sys/fs/cgroup/memory.stat=inactive_file many"}, 1000, 1100, 0},
		"damaged": {files: []string{"proc/self/cgroup=0\n::\n:", "sys/fs/cgroup/memory.max=many",
			"sys/fs/cgroup/cpu.max=1"}},
	} {
		l := Read(tree(t, c.files))
		if l.Memory != c.limit || l.Used != c.used || l.CPUs != c.cpus {
			t.Errorf("%s: %+v; want %d, %d, %v", name, l, c.limit, c.used, c.cpus)
		}
		if left, limited := l.Left(); limited != (c.limit > 0) || limited && left != max(c.limit-c.used, 0) {
			t.Errorf("%s: %d left, %v", name, left, limited)
		}
	}
}
