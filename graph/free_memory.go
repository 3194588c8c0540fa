package graph

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/internal/cgroup"
)

// besidePlan is what a run takes besides its plan, garbage and what a save writes; a control group ends who exceeds it.
const besidePlan = 6 << 20

// availableMemory returns what the system could give plans of this process without swapping or ending it, in bytes: a
// container or a job has less than the machine. root is "/", or a test's tree.
func availableMemory(root string) (int64, bool) {
	bytes, known := systemMemory(root)
	if left, limited := cgroup.Read(root).Left(); limited {
		if left = max(left-besidePlan, 0); !known || left < bytes {
			return left, true
		}
	}
	return bytes, known
}

func systemMemory(root string) (int64, bool) {
	f, err := os.Open(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kib int64
		if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				return kib << 10, true
			}
		}
	}
	return 0, false
}
