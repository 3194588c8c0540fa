package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlora/tierlora/internal/rescue"
)

// lastOpened is the device that this process works on.
var lastOpened atomic.Pointer[Properties]

// readWithin is how long a card that may be gone has to answer NVML.
const readWithin = 5 * time.Second

// diagnosed is an error of a device with what its card says of itself.
type diagnosed struct {
	error
	card string
}

func (d *diagnosed) Error() string { return d.error.Error() + "; " + d.card }
func (d *diagnosed) Unwrap() error { return d.error }

// Diagnose adds to an error of a driver call what NVML reads of the card now, and what to do about it. Another error,
// and one that was diagnosed already, stays what it is.
func Diagnose(err error) error {
	var done *diagnosed
	var failed *Error
	if err == nil || errors.As(err, &done) || !errors.As(err, &failed) {
		return err
	}
	p := lastOpened.Load()
	if p == nil {
		return err // no device was opened: the error is about the driver itself
	}
	card, rerr := readCardOf(*p)
	return &diagnosed{err, condition(failed.Code, *p, card, rerr)}
}

// readCardOf reads one card, in bounded time.
func readCardOf(p Properties) (Card, error) {
	type answer struct {
		card Card
		err  error
	}
	got := make(chan answer, 1)
	rescue.Go(func() {
		waitXids()
		cards, err := ReadCards()
		if err != nil {
			got <- answer{err: err}
			return
		}
		card, ok := CardOf(cards, p)
		if !ok {
			err = errors.New("NVML lists the card no more")
		}
		got <- answer{card, err}
	})
	select {
	case a := <-got:
		return a.card, a.err
	case <-time.After(readWithin):
		return Card{}, fmt.Errorf("NVML does not answer within %v", readWithin)
	}
}

// xidWords are the driver's critical errors that tell what to do; NVIDIA's list of Xid errors has them all.
var xidWords = map[int]string{
	13:  "a kernel's exception",
	31:  "a kernel accessed memory out of bounds",
	43:  "a kernel was stopped",
	45:  "the work was ended after an earlier error",
	48:  "a memory error that ECC could not correct",
	61:  "the GPU's own controller stopped",
	62:  "the GPU's own controller stopped",
	63:  "a memory row is remapped at the next reset",
	64:  "a memory row could not be remapped",
	74:  "an NVLink error",
	79:  "the GPU has fallen off the bus",
	92:  "many corrected memory errors",
	94:  "a memory error that ECC could not correct, in this program alone",
	95:  "a memory error that ECC could not correct, in the whole card",
	119: "the GPU's system processor does not answer",
	120: "the GPU's system processor failed",
}

var (
	memoryXids = []int{48, 63, 64, 92, 94, 95}
	goneXids   = []int{61, 62, 79, 119, 120}
)

// condition says how a card is after a driver call answered code, and what to do. It is read off what is given, alone.
func condition(code int, p Properties, c Card, rerr error) string {
	s := fmt.Sprintf("GPU %d (%s, %s)", p.Index, p.Name, p.PCI)
	if rerr != nil {
		s += " cannot be read: " + rerr.Error()
	} else if c.Problem != "" {
		s += ": " + c.Problem
	} else {
		s += " now: " + strings.Join(readings(c), ", ")
	}
	if len(c.Xids) > 0 {
		var told []string
		for _, x := range c.Xids {
			if w := xidWords[x]; w != "" {
				told = append(told, fmt.Sprintf("Xid %d (%s)", x, w))
			} else {
				told = append(told, fmt.Sprintf("Xid %d", x))
			}
		}
		s += "; the driver reports " + strings.Join(told, ", ")
	}
	if a := remedy(code, c, rerr); a != "" {
		s += "; " + a
	}
	return s
}

// readings returns a card's numbers that may explain a failure.
func readings(c Card) (r []string) {
	if c.Temperature != nil {
		t := fmt.Sprintf("%d C", *c.Temperature)
		if c.hot() {
			t += ", too hot"
		}
		r = append(r, t)
	}
	r = append(r, fmt.Sprintf("%.1f of %.1f GiB used", float64(c.Used)/(1<<30), float64(c.Total)/(1<<30)))
	if len(c.Throttled) > 0 {
		r = append(r, "throttled by "+strings.Join(c.Throttled, " and "))
	}
	switch {
	case c.ECC == "disabled":
		r = append(r, "ECC off")
	case c.Uncorrected != nil:
		r = append(r, fmt.Sprintf("%d uncorrected ECC errors since the driver started", *c.Uncorrected))
	}
	if c.RemapPending != nil && *c.RemapPending || c.RetirePending != nil && *c.RetirePending {
		r = append(r, "damaged memory waits for a reset to be taken out of use")
	}
	if c.RemapFailed != nil && *c.RemapFailed {
		r = append(r, "damaged memory could not be replaced")
	}
	return r
}

func (c Card) hot() bool {
	return c.Temperature != nil && (c.SlowdownAt != nil && *c.Temperature >= *c.SlowdownAt || c.ShutdownAt != nil &&
		*c.Temperature >= *c.ShutdownAt)
}

func anyOf(have, of []int) bool {
	return slices.ContainsFunc(have, func(x int) bool { return slices.Contains(of, x) })
}

// remedy returns what to do, the surest cause first.
func remedy(code int, c Card, rerr error) string {
	const (
		gone = "the card lost its power or its PCIe link, or its firmware stopped: read the kernel's log (dmesg, " +
			"Xid), check power supply, cables and cooling, and restart the machine; a card that does it again is " +
			"defective"
		ecc = "the card's memory is damaged: reset it (nvidia-smi --gpu-reset) or restart the machine, which takes " +
			"the damaged part out of use; a card that does it again (nvidia-smi -q -d ECC,ROW_REMAPPER) is defective"
		hot = "the card overheats: check fans, air flow and nvidia-smi -q -d TEMPERATURE, or lower its power limit " +
			"(nvidia-smi -pl WATTS)"
	)
	damaged := code == codeECC || anyOf(c.Xids, memoryXids) || c.Uncorrected != nil && *c.Uncorrected > 0
	switch {
	case c.Problem != "" || anyOf(c.Xids, goneXids) || code == codeNoDevice:
		return gone
	case damaged:
		return ecc
	case c.hot():
		return hot
	case code == codeUnknown || rerr != nil && code == codeUnavailable:
		return gone
	case code == codeLaunchTimeout:
		return "the system stops long kernels on a card that drives a display: use a card that drives none, or turn " +
			"that limit off"
	case code == codeNVLink:
		return "check the NVLink bridges and nvidia-smi nvlink -e, and restart the machine"
	case code == codeOutOfMemory && len(c.Processes) > 0:
		var who []string
		for _, p := range c.Processes[:min(len(c.Processes), 5)] {
			who = append(who, strings.TrimSpace(fmt.Sprintf("%d %s", p.PID, p.Name))+fmt.Sprintf(" %.1f GiB",
				float64(p.Bytes)/(1<<30)))
		}
		return "processes on it: " + strings.Join(who, ", ")
	case kernelFault[code]:
		return "the card looks sound, so this is likely a defect of a kernel: trainer selfcheck tries them all; " +
			"please report it with the configuration"
	}
	return ""
}
