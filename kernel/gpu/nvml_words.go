//go:build gpu && linux

package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// nvmlWords are the answers of NVML that have a meaning for a person.
var nvmlWords = map[int]string{
	4:  "this user may not ask",
	9:  "the NVIDIA driver is not loaded",
	10: "no answer in time",
	12: "its library was not found",
	13: "this driver is too old for the call",
	14: "the card's configuration memory (infoROM) is damaged",
	15: "the GPU has fallen off the bus or does not answer any more",
	16: "the GPU must be reset before it can be used again",
	17: "the operating system or the container does not let this process open the card",
	18: "the driver's kernel module and its libraries are of different versions; restart the machine after an " +
		"update of the driver",
	999: "the driver does not know",
}

// nvmlError is a failed call of NVML.
type nvmlError struct {
	call string
	code int
}

func (e nvmlError) Error() string {
	if w := nvmlWords[e.code]; w != "" {
		return fmt.Sprintf("%s answers %d: %s", e.call, e.code, w)
	}
	return fmt.Sprintf("%s answers %d", e.call, e.code)
}

// printable returns a name from outside as it may be shown: no control characters, at most 64 bytes.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '�' || !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "")
	}
	return s
}

// linkPaths are the values of nvmlGpuTopologyLevel_t in words.
var linkPaths = map[int]string{
	0: "on one board", 10: "one PCIe switch", 20: "several PCIe switches", 30: "one host bridge", 40: "one processor",
	50: "two processors",
}

// accessWord puts two values of nvmlGpuP2PStatus_t, of reading and writing, in words.
func accessWord(read, write int) string {
	for _, status := range []int{read, write} {
		switch status {
		case 0:
		case -1:
			return ""
		case 1:
			return "the chipset does not let them"
		case 2:
			return "these cards cannot"
		case 3:
			return "the way over two processors does not let them"
		case 4:
			return "the driver is told not to (registry key)"
		case 5:
			return "the driver does not let them"
		default:
			return "the driver does not know"
		}
	}
	return AccessOK
}
