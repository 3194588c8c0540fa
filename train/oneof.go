package train

import (
	"fmt"
	"os"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// StepsPhase is the phase that a rank reports (ranks.Group.At) while it makes steps.
const StepsPhase = string(phaseSteps)

// OneOf returns the spec and the GPU of one of several processes on this host that have a device each. local is the
// index of the process, from 0; its GPU is the one at that index of `devices`. locals is the number of these processes;
// 0 = not known.
func (s Spec) OneOf(local, locals int) (Spec, int, error) {
	kind, err := graph.DeviceKind(s.Device)
	if err != nil {
		return s, 0, err
	}
	there, _ := graph.GPUs()
	return s.oneOf(kind == "cpu", there, os.Getenv("CUDA_VISIBLE_DEVICES") != "" ||
		os.Getenv("SLURM_JOB_ID") != "", local, locals)
}

// oneOf implements OneOf for a computer with there GPUs; chosen says that a launcher may have assigned a GPU to each
// process already.
func (s Spec) oneOf(cpu bool, there int, chosen bool, local, locals int) (Spec, int, error) {
	n, which, err := parseDevices(s.Devices)
	asked := s.Devices
	s.Devices = "1"
	locals = max(locals, local+1)
	switch {
	case err != nil || cpu:
		return s, 0, err
	case which == nil && there == 1 && chosen:
		return s, 0, nil
	case which != nil && len(which) < locals, which == nil && n > 1 && n < locals:
		return s, 0, fmt.Errorf("devices: %s is fewer than the %d processes that were started on this host, which "+
			"have a device each", asked, locals)
	case which != nil:
		return s, which[local], nil
	case local >= there:
		return s, 0, fmt.Errorf("process %d of this host has no GPU of its own: there are %d here: %w", local,
			there, session.ErrNoDevice)
	}
	return s, local, nil
}
