package train

import (
	"fmt"
	"io"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/step"
)

// optimizerFile is the name of the optimizer's states in a checkpoint.
const optimizerFile = "optimizer.safetensors"

// sentPart bounds the bytes of a state that a rank sends the others at a time.
const sentPart = 64 << 20

// stateType returns the type of a state in a checkpoint, where it is whole.
func stateType(of *step.Step, name string, t kernel.Type) kernel.Type {
	if n, cut := of.Sharded[name]; cut {
		return kernel.T(t.DType, n)
	}
	return t
}

// stateBytes returns the size of the optimizer's states in a checkpoint.
func (p *prepared) stateBytes() (all int64) {
	step := p.found.Step.train
	for _, name := range step.States {
		if t, ok := step.Plan.Input(name); ok {
			all += stateType(step, name, t).Bytes()
		}
	}
	return all
}

// stateSharding returns how the optimizer's states lie in slices; nil = each rank has them whole.
func stateSharding(p *planner) *PlanStates {
	of := p.found.Step.train
	if of == nil || len(of.Sharded) == 0 {
		return nil
	}
	s := &PlanStates{Devices: p.world, ReceivedBytes: of.Received}
	for _, name := range of.States {
		if t, ok := of.Plan.Input(name); ok {
			s.SliceBytes += kernel.AlignUp(t.Bytes())
			s.WholeBytes += kernel.AlignUp(stateType(of, name, t).Bytes())
		}
	}
	return s
}

// checkSharding returns an error if the configuration requires states in slices and the optimizer keeps all of them
// whole.
func checkSharding(p *planner) error {
	if p.spec.Training.OptimizerSharding != "always" || len(p.found.Step.train.Sharded) > 0 {
		return nil
	}
	return fmt.Errorf("training.optimizer_sharding: always: %s keeps its states whole on each device for what this "+
		"run trains: muon's matrices, adafactor, moments in 8 bits of an adapter and tensors of fewer than %d numbers "+
		"are not cut; write auto or never, or take training.optimizer: adamw", p.spec.Training.Optimizer,
		step.LeastSliced)
}

// checkPinned returns an error if the host has no memory for optimizer states that the layout keeps there.
func checkPinned(p *planner) error {
	need := p.found.Need.Offloaded()
	if need == 0 {
		return nil
	}
	free, err := p.freeHost()
	if err != nil {
		return err
	}
	return pinnedShortage(need, free)
}

// pinnedShortage returns an error if more bytes are page-locked for a device than are free for it; 0 free bytes are not
// known.
func pinnedShortage(need, free int64) error {
	if free == 0 || need <= free {
		return nil
	}
	return fmt.Errorf("%w: training.optimizer_offload: the optimizer's states take %s of page-locked host memory for "+
		"each device, and the host has %s free for it: %s too much; end other programs, take an optimizer with "+
		"smaller states (training.optimizer: adamw_8bit), or with several devices training.optimizer_sharding: always",
		session.ErrDoesNotFit, session.FormatBytes(need), session.FormatBytes(free), session.FormatBytes(need-free))
}

// writeOptimizer writes the optimizer's states directly from memory, because they are larger than the adapter. Where
// they lie in slices, all ranks call it, in the same order.
func (s *saver) writeOptimizer(w io.Writer) error {
	if err := s.memory.Get(s.step.States...); err != nil {
		return err
	}
	var tensors []weights.Tensor
	for _, name := range s.step.States {
		x, err := s.memory.Tensor(name)
		if err != nil {
			return err
		}
		d := weights.F32
		if x.DType == kernel.U8 {
			d = weights.U8
		}
		// Little endian, as in the file.
		tensors = append(tensors, weights.Tensor{Name: name, DType: d, Shape: stateType(s.step, name, x.Type).Shape,
			Data: x.Bytes()})
	}
	return weights.EncodeEach(w, tensors, nil, s.writeState)
}

// writeState writes a state whole: its slices in the order of the ranks, without what lies behind the last one.
func (s *saver) writeState(t weights.Tensor, w io.Writer) error {
	n, cut := s.step.Sharded[t.Name]
	if !cut {
		_, err := w.Write(t.Data)
		return err
	}
	left := int64(n) * int64(t.DType.Size())
	for r := range s.env.team.World() {
		for at := 0; at < len(t.Data) && left > 0; at += sentPart {
			var mine []byte
			if r == s.env.team.Rank() {
				mine = t.Data[at:min(at+sentPart, len(t.Data))]
			}
			all, err := s.env.team.Group.Gather(s.env.team.ctx, "slices of the optimizer's states", mine)
			if err != nil {
				return err
			}
			n, err := w.Write(all[r][:min(int64(len(all[r])), left)])
			if left -= int64(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *saver) restoreOptimizer(path string, file []byte) error {
	f, err := weights.Decode(file)
	if err != nil {
		return err
	}
	for _, name := range s.step.States {
		dst, err := s.memory.Tensor(name)
		if err != nil {
			return err
		}
		t, ok := f.Tensor(name)
		if !ok && name == step.StateScaling {
			s.env.Logf("%s was saved by a run without loss scaling: it begins at %v", path, s.recorder.scale)
			continue
		}
		whole := stateType(s.step, name, dst.Type).Elems()
		if !ok || t.Len() != whole || (t.DType == weights.U8) != (dst.DType == kernel.U8) {
			return fmt.Errorf("%s: %s does not fit this run's adapter", optimizerFile, name)
		}
		from, to := 0, whole
		if _, cut := s.step.Sharded[name]; cut {
			from = min(s.env.team.rank()*dst.Elems(), whole)
			to = min(from+dst.Elems(), whole)
		}
		if dst.DType == kernel.U8 {
			copy(dst.Bytes(), t.Data[from:to])
			continue
		}
		if err := weights.Float32Range(t, from, to, dst.F32()[:to-from]); err != nil {
			return err
		}
		if name == step.StateScaling {
			s.recorder.scale = float64(dst.F32()[kernel.LossScaleNow])
		}
	}
	return s.memory.Put(s.step.States...)
}
