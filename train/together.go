package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/infer"
)

// perRank are the keys of the configuration that may differ between ranks: where things lie, and what rank 0 alone does.
// What lies there is compared by its contents.
var perRank = []string{"base_model", "dataset.path", "dataset.val_path", "dataset.cache_dir", "output_dir", "device", "devices", "vram",
	"training.resume", "training.report_to", "training.logging_steps", "training.device_timeout", "lora.init_from", "expect."}

// configured is what of the configuration must be the same on all ranks.
func (p *prepared) configured() []fact {
	facts := []fact{{"the program", strings.TrimSpace(p.env.Version + " " + p.env.Commit)}, {"the precision", p.On.Precision().String()}}
	for _, k := range parameters(p.spec) {
		if !slices.ContainsFunc(perRank, func(name string) bool {
			return k.Key == name || strings.HasSuffix(name, ".") && strings.HasPrefix(k.Key, name)
		}) {
			facts = append(facts, fact{k.Key, k.Value})
		}
	}
	return facts
}

// compareRanks refuses ranks that begin otherwise than rank 0: with another base model, other rows, another place in them,
// another adapter or state of the optimizer, other plans, or other software, whose bits differ. Of a base model's weights
// the names, types, shapes and edges are compared, not every byte.
func (r *running) compareRanks() error {
	if r.env.team == nil {
		return nil
	}
	params, err := r.step.Trained.Snapshot(r.memory)
	if err != nil {
		return err
	}
	adapterSum, states := sha256.New(), sha256.New()
	for _, p := range params {
		io.WriteString(adapterSum, p.Name)                    //nolint:errcheck // a hash takes everything
		binary.Write(adapterSum, binary.LittleEndian, p.Data) //nolint:errcheck
	}
	if err := r.saver.writeOptimizer(states); err != nil {
		return err
	}
	plans := sha256.New()
	for _, plan := range r.found.Step.plans() {
		io.WriteString(plans, plan.String()) //nolint:errcheck
	}
	sum := func(h interface{ Sum([]byte) []byte }) string { return hex.EncodeToString(h.Sum(nil))[:16] }
	state, software := r.loader.State(), r.On.Software()
	return r.env.team.same("what the ranks begin with", []fact{
		{"the base model's weights", r.Base.Fingerprint()[:16]},
		{"the rows", state.Data},
		{"the place in the rows", fmt.Sprintf("epoch %d, batch %d", state.Epoch, state.Position)},
		{"the number of steps", fmt.Sprint(r.total)},
		{"the adapter", sum(adapterSum)},
		{"the optimizer's state", sum(states)},
		{"the layout", r.found.Layout.String()},
		{"the plan", sum(plans)},
		{"the device", r.On.Name()},
		{"the kernels", software.Kernels},
		{"the driver", software.Driver},
		{"the libraries", strings.Join(software.Libraries, ", ")},
	})
}

// evaluateTogether is the loss over the validation rows, whose batches the ranks take in turn: the sums of the batches are
// added in their order, so that it is the loss of one rank to the last bit. After each round all know of an interrupt.
func (r *running) evaluateTogether(ctx context.Context, of int, see func(batches int) error) (all infer.Sum, err error) {
	t := r.env.team
	share := func(one infer.Sum) error {
		flag := byte(0)
		if r.interrupted() {
			flag = 1
		}
		sent, err := t.Group.Gather(t.ctx, "the loss of an evaluation's batch", encodeSum(one, flag))
		if err != nil {
			return err
		}
		stop := false
		for rank, text := range sent {
			theirs, flag, err := decodeSum(text)
			if err != nil {
				return fmt.Errorf("evaluate: rank %d: %w", rank, err)
			}
			stop = stop || flag != 0
			all.Add(theirs)
		}
		if err := see(all.Batches); err != nil {
			return err
		}
		if stop && all.Batches < of {
			return errInterrupted
		}
		return nil
	}
	rounds := 0
	if err := r.evaluator.Each(ctx, r.val, func(one infer.Sum) error { rounds++; return share(one) }); err != nil {
		return all, err
	}
	for ; rounds < (of+t.World()-1)/t.World(); rounds++ { // of the others
		if r.sharded() {
			if err := r.evaluator.Again(); err != nil {
				return all, err
			}
		}
		if err := share(infer.Sum{}); err != nil {
			return all, err
		}
	}
	return all, nil
}

const sumBytes = 4*8 + 1

func encodeSum(s infer.Sum, flag byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, sumBytes), math.Float64bits(s.NLL))
	for _, n := range []int64{s.Trained, s.Tokens, int64(s.Batches)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return append(b, flag)
}

func decodeSum(b []byte) (s infer.Sum, flag byte, err error) {
	if len(b) != sumBytes {
		return s, 0, fmt.Errorf("a sum of %d bytes, want %d", len(b), sumBytes)
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return infer.Sum{NLL: math.Float64frombits(at(0)), Trained: int64(at(1)), Tokens: int64(at(2)), Batches: int(at(3))}, b[sumBytes-1], nil
}
