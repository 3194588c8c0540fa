package gpu

import (
	"fmt"
	"strconv"
)

// ShareVariable makes each GPU stand for so many devices, so that several ranks can be tried where there is one GPU:
// they share its time and its memory. Each has to be a process of its own, since processes take turns on a GPU while
// the ranks of one wait for one another. NCCL has it from 2.30 on.
const ShareVariable = "TRAINER_SHARE_GPU"

const mostShares = 8

// parseShares reads the variable's value; "" is 1.
func parseShares(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostShares {
		return 0, fmt.Errorf("%s: %q is not a number of devices from 1 to %d for which each GPU stands", ShareVariable,
			text, mostShares)
	}
	return n, nil
}
