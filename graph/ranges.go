package graph

import (
	"fmt"
	"os"
	"strconv"
)

// RangesVariable is the environment variable that asks for NVTX ranges of a run on a GPU: 1 for those of phases, steps
// and micro-batches, whose work is a captured graph; calls for those of layers and operations too, where each call is
// queued by itself.
const RangesVariable = "TRAINER_NVTX"

// marker shows ranges to a profiler.
type marker interface {
	Push(name string)
	Pop()
}

// ranges is nil where nobody watches.
var ranges marker

// Range is a part of a run that a profiler shows, on one OS thread. The zero Range is none.
type Range struct{ open bool }

// StartRange begins a range inside the one that is open; without a profiler's variable set it does nothing.
func StartRange(name string) Range {
	if ranges == nil {
		return Range{}
	}
	ranges.Push(name)
	return Range{true}
}

// StartRangeNumber returns StartRange of a name and a number, such as "step 7".
func StartRangeNumber(name string, n int) Range {
	if ranges == nil {
		return Range{}
	}
	ranges.Push(name + " " + strconv.Itoa(n))
	return Range{true}
}

// End ends the range, after all that were begun inside it.
func (r Range) End() {
	if r.open {
		ranges.Pop()
	}
}

// RangesAsked reads the variable.
func RangesAsked() (any, calls bool, err error) {
	switch v := os.Getenv(RangesVariable); v {
	case "", "0":
		return false, false, nil
	case "1":
		return true, false, nil
	case "calls":
		return true, true, nil
	default:
		return false, false,
			fmt.Errorf("%s=%q: must be 1 (ranges of steps and phases) or calls (also of layers and operations, "+
				"without captured graphs), or be left out", RangesVariable, v)
	}
}
