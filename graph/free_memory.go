package graph

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// availableMemory is what the system could give without swapping, in bytes.
func availableMemory() (int64, bool) {
	f, err := os.Open("/proc/meminfo")
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
