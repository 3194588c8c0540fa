package graph

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAvailableMemory: a container's limit counts where it leaves less than the machine has.
func TestAvailableMemory(t *testing.T) {
	meminfo := map[string]string{"proc/meminfo": "MemTotal: 100 kB\nMemAvailable:   50 kB\n"}
	group := map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "20480\n", "sys/fs/cgroup/memory.current": "10240\n"}
	large := map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2048000\n", "sys/fs/cgroup/memory.current": "10240\n"}
	over := map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2048\n", "sys/fs/cgroup/memory.current": "10240\n"}
	for name, c := range map[string]struct {
		files []map[string]string
		bytes int64
		known bool
	}{
		"nothing is said":       {nil, 0, false},
		"the machine's":         {[]map[string]string{meminfo}, 50 << 10, true},
		"the container's":       {[]map[string]string{meminfo, group}, 10 << 10, true},
		"a large container's":   {[]map[string]string{meminfo, large}, 50 << 10, true},
		"nothing is left":       {[]map[string]string{meminfo, over}, 0, true},
		"the container's alone": {[]map[string]string{group}, 10 << 10, true},
	} {
		dir := t.TempDir()
		for _, files := range c.files {
			for path, text := range files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if bytes, known := availableMemory(dir); bytes != c.bytes || known != c.known {
			t.Errorf("%s: %d, %v; want %d, %v", name, bytes, known, c.bytes, c.known)
		}
	}
}
