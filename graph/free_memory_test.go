package graph

import (
	"os"
	"testing"
	"testing/fstest"
)

// TestAvailableMemory: a container's limit counts where it leaves less than the machine has, but for what a run takes
// besides its plan.
func TestAvailableMemory(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	meminfo := fstest.MapFS{"proc/meminfo": file("MemTotal: 102400 kB\nMemAvailable:   51200 kB\n")}
	group := fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("20971520\n"),
		"sys/fs/cgroup/memory.current": file("10485760\n")}
	large := fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("2097152000\n"),
		"sys/fs/cgroup/memory.current": file("10485760\n")}
	little := fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("15728640\n"),
		"sys/fs/cgroup/memory.current": file("10485760\n")}
	over := fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("2097152\n"),
		"sys/fs/cgroup/memory.current": file("10485760\n")}
	for name, c := range map[string]struct {
		files []fstest.MapFS
		bytes int64
		known bool
	}{
		"nothing is said":     {nil, 0, false},
		"the machine's":       {[]fstest.MapFS{meminfo}, 50 << 20, true},
		"the container's":     {[]fstest.MapFS{meminfo, group}, 4 << 20, true},
		"a large container's": {[]fstest.MapFS{meminfo, large}, 50 << 20, true},
		"less is left than a run takes besides its plan": {[]fstest.MapFS{meminfo, little}, 0, true},
		"nothing is left":       {[]fstest.MapFS{meminfo, over}, 0, true},
		"the container's alone": {[]fstest.MapFS{group}, 4 << 20, true},
	} {
		dir := t.TempDir()
		for _, files := range c.files {
			if err := os.CopyFS(dir, files); err != nil {
				t.Fatal(err)
			}
		}
		if bytes, known := availableMemory(dir); bytes != c.bytes || known != c.known {
			t.Errorf("%s: %d, %v; want %d, %v", name, bytes, known, c.bytes, c.known)
		}
	}
}
