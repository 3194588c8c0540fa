package gpu

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func of[T any](v T) *T { return &v }

// TestCondition: what is said of a card after a failure, and that the surest cause decides the advice.
func TestCondition(t *testing.T) {
	p := Properties{Index: 1, Name: "NVIDIA H200", PCI: "0000:17:00.0"}
	sound := Card{Temperature: of(int64(41)), SlowdownAt: of(int64(90)), Used: 3 << 30, Total: 140 << 30,
		ECC: "enabled", Uncorrected: of(int64(0))}
	with := func(change func(c *Card)) Card { c := sound; change(&c); return c }
	const lost = "restart the machine; a card that does it again is defective"
	for _, c := range []struct {
		name string
		code int
		card Card
		err  error
		want []string
		not  string
	}{
		{"a kernel's fault on a sound card", 700, sound, nil,
			[]string{"GPU 1 (NVIDIA H200, 0000:17:00.0) now: 41 C, 3.0 of 140.0 GiB used, 0 uncorrected ECC errors " +
				"since the driver started; ",
				"likely a defect of a kernel: trainer selfcheck"}, "overheats"},
		{"a stack", 714, sound, nil, []string{"likely a defect of a kernel"}, ""},
		{"ECC by the code", 214, sound, nil, []string{"the card's memory is damaged: reset it"}, "defect of a kernel"},
		{"ECC by the counts", 719, with(func(c *Card) { c.Uncorrected = of(int64(2)) }), nil,
			[]string{"2 uncorrected ECC errors", "the card's memory is damaged"}, "defect of a kernel"},
		{"ECC by Xid", 700, with(func(c *Card) { c.Xids = []int{94} }), nil,
			[]string{"the driver reports Xid 94 (a memory error that ECC could not correct, in this program alone)",
				"the card's memory is damaged"}, ""},
		{"rows to remap", 214, with(func(c *Card) { c.RemapPending = of(true) }), nil,
			[]string{"damaged memory waits for a reset"}, ""},
		{"rows that cannot be remapped", 214, with(func(c *Card) { c.RemapFailed = of(true) }), nil,
			[]string{"damaged memory could not be replaced"}, ""},
		{"heat", 719, with(func(c *Card) {
			c.Temperature, c.Throttled = of(int64(92)),
				[]string{"temperature (hardware)"}
		}), nil,
			[]string{"92 C, too hot", "throttled by temperature (hardware)", "the card overheats: check fans"},
			"defect of a kernel"},
		{"fallen off the bus, by Xid", 719, with(func(c *Card) { c.Xids = []int{79, 154} }), nil,
			[]string{"Xid 79 (the GPU has fallen off the bus), Xid 154", lost}, "defect of a kernel"},
		{"fallen off the bus, by NVML", 999,
			Card{Problem: "NVML answers 15: the GPU has fallen off the bus or does not answer any more"}, nil,
			[]string{"fallen off the bus", lost}, "now:"},
		{"unknown", 999, sound, nil, []string{lost}, ""},
		{"no device any more", 100, Card{}, errors.New("NVML lists the card no more"),
			[]string{"cannot be read: NVML lists the card no more", lost}, ""},
		{"NVML absent", 700, Card{}, errors.New("NVML: open libnvidia-ml.so.1: not found"),
			[]string{"cannot be read: NVML: open"}, "fallen off"},
		{"no ECC", 719, with(func(c *Card) { c.ECC, c.Uncorrected = "disabled", nil }), nil, []string{"ECC off"}, ""},
		{"a display", 702, sound, nil, []string{"drives a display"}, ""},
		{"memory", 2, with(func(c *Card) {
			c.Processes = []CardProcess{{PID: 7, Name: "python3", Bytes: 2 << 30},
				{PID: 8}}
		}), nil, []string{"processes on it: 7 python3 2.0 GiB, 8 0.0 GiB"}, "defect"},
	} {
		got := condition(c.code, p, c.card, c.err)
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", c.name, got, w)
			}
		}
		if c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %q says %q", c.name, got, c.not)
		}
	}
}

// Every code that ends the context, and every one that a failing card gives, has words.
func TestErrorsHaveWords(t *testing.T) {
	for _, code := range []int{2, 46, 100, 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 999} {
		if hints[code] == "" {
			t.Errorf("code %d has no words", code)
		}
	}
	for code := range kernelFault {
		if e := (&Error{Code: code}); !e.Sticky() || !errors.Is(e, ErrLost) {
			t.Errorf("code %d leaves the context", code)
		}
	}
}

func TestDiagnose(t *testing.T) {
	defer lastOpened.Store(lastOpened.Load())
	failed := fmt.Errorf("after step 7: %w", &Error{What: "replay", Call: "cuGraphLaunch", Code: 719})
	lastOpened.Store(nil)
	if got := Diagnose(failed); got != failed {
		t.Errorf("without a device: %v", got)
	}
	lastOpened.Store(&Properties{Name: "Imaginary GPU", UUID: "99999999-9999-9999-9999-999999999999",
		PCI: "0009:99:00.0"})
	other := errors.New("no rows")
	if Diagnose(nil) != nil || Diagnose(other) != other {
		t.Error("an error that is no device's was changed")
	}
	got := Diagnose(failed)
	var e *Error
	if !errors.As(got, &e) || !errors.Is(got, ErrLost) ||
		!strings.HasPrefix(got.Error(), failed.Error()+"; GPU 0 (Imaginary GPU, 0009:99:00.0) cannot be read: ") {
		t.Errorf("%v", got)
	}
	if Diagnose(fmt.Errorf("run: %w", got)).Error() != "run: "+got.Error() {
		t.Error("it was diagnosed twice")
	}
}
