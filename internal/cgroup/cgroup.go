// Package cgroup reads what Linux's control groups allow this process: the limits of a container, or of a job.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits are the least of what the groups allow that a process is in.
type Limits struct {
	Memory int64 // bytes; 0 = no limit
	// Used is what the group with the least memory holds of it, but for pages of files that it would give up at once.
	Used int64
	CPUs float64 // 0 = no limit
}

// Left is the memory that is left below the limit, not less than nothing; limited is false where there is none.
func (l Limits) Left() (bytes int64, limited bool) { return max(l.Memory-l.Used, 0), l.Memory > 0 }

// Read reads versions 2 and 1 below root, "/" or a test's tree. What cannot be read is no limit.
func Read(root string) Limits {
	r := reader{root: root}
	for _, line := range strings.Split(r.text("proc/self/cgroup"), "\n") {
		if parts := strings.SplitN(line, ":", 3); len(parts) == 3 {
			// What a container sees of the host's groups may begin with "..".
			r.group(parts[1], filepath.Clean("/"+parts[2]))
		}
	}
	return r.limits
}

type reader struct {
	root   string
	limits Limits
}

// group reads a group and those above it; kinds is "" in version 2.
func (r *reader) group(kinds, dir string) {
	list := strings.Split(kinds, ",")
	for ; ; dir = filepath.Dir(dir) {
		switch {
		case kinds == "":
			at := filepath.Join("sys/fs/cgroup", dir)
			r.memory(at, "memory.max", "memory.current", "inactive_file")
			var micros string
			var period float64
			if n, _ := fmt.Sscan(r.text(at+"/cpu.max"), &micros, &period); n == 2 {
				if m, err := strconv.ParseFloat(micros, 64); err == nil {
					r.quota(m, period)
				}
			}
		case slices.Contains(list, "memory"):
			r.memory(filepath.Join("sys/fs/cgroup/memory", dir), "memory.limit_in_bytes", "memory.usage_in_bytes",
				"total_inactive_file")
		case slices.Contains(list, "cpu"):
			at := filepath.Join("sys/fs/cgroup", kinds, dir)
			r.quota(float64(r.number(at+"/cpu.cfs_quota_us")), float64(r.number(at+"/cpu.cfs_period_us")))
		}
		if dir == "/" {
			return
		}
	}
}

func (r *reader) memory(at, limit, used, files string) {
	n := r.number(at + "/" + limit)
	if n == 0 || r.limits.Memory > 0 && n >= r.limits.Memory {
		return
	}
	r.limits.Memory, r.limits.Used = n, r.number(at+"/"+used)
	for _, line := range strings.Split(r.text(at+"/memory.stat"), "\n") {
		if name, value, _ := strings.Cut(line, " "); name == files {
			if pages, err := strconv.ParseInt(value, 10, 64); err == nil && pages > 0 {
				r.limits.Used = max(r.limits.Used-pages, 0)
			}
		}
	}
}

func (r *reader) quota(micros, period float64) {
	if micros > 0 && period > 0 && (r.limits.CPUs == 0 || micros/period < r.limits.CPUs) {
		r.limits.CPUs = micros / period
	}
}

// number is a file's, 0 for none: "max", or version 1's number for it.
func (r *reader) number(path string) int64 {
	n, err := strconv.ParseInt(r.text(path), 10, 64)
	if err != nil || n <= 0 || n >= 1<<60 {
		return 0
	}
	return n
}

func (r *reader) text(path string) string {
	b, err := os.ReadFile(filepath.Join(r.root, path))
	if err != nil || len(b) > 1<<20 {
		return ""
	}
	return strings.TrimSpace(string(b))
}
