package train

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// checkRoom refuses a plan that needs more memory than the machine has free. Where the system does not say
// how much that is, nothing is refused.
func checkRoom(need int64) error {
	free, ok := availableMemory()
	if ok && need > free {
		return fmt.Errorf("%w: the plan holds %s and the machine has %s available; lower training.batch_size or dataset.max_length, or use adapter: qlora",
			ErrDoesNotFit, FormatBytes(need), FormatBytes(free))
	}
	return nil
}

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
