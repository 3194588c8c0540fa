//go:build gpu && linux

package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// nvmlWords are the answers of NVML that have a meaning for a person.
var nvmlWords = map[int]string{
	4:   "this user may not ask",
	9:   "the NVIDIA driver is not loaded",
	10:  "no answer in time",
	12:  "its library was not found",
	13:  "this driver is too old for the call",
	14:  "the card's configuration memory (infoROM) is damaged",
	15:  "the GPU has fallen off the bus or does not answer any more",
	16:  "the GPU must be reset before it can be used again",
	17:  "the operating system or the container does not let this process open the card",
	18:  "the driver's kernel module and its libraries are of different versions; restart the machine after an update of the driver",
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

// printable is a name from outside as it may be shown: no control characters, at most 64 bytes.
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
