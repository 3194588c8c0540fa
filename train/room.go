package train

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
)

// checkRoom refuses a plan that needs more memory than the machine has free. Where the system does not say
// how much that is, nothing is refused.
func checkRoom(on graph.Machine, need int64) error {
	free, known, err := on.FreeMemory()
	if err == nil && known && need > free {
		err = fmt.Errorf("%w: the plan holds %s and %s has %s available; lower training.batch_size or dataset.max_length, or use adapter: qlora",
			ErrDoesNotFit, FormatBytes(need), on.Name(), FormatBytes(free))
	}
	return err
}
