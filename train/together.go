package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
)

// perRank lists the keys of the configuration that may differ between ranks: paths, and settings that only rank 0 uses.
// The contents behind the paths are compared instead.
var perRank = []string{"base_model", "dataset.path", "dataset.val_path", "dataset.cache_dir", "output_dir",
	"device", "devices", "vram",
	"training.resume", "training.report_to", "training.logging_steps", "training.device_timeout",
	"training.ddp_timeout", "lora.init_from", "expect."}

// configured returns the part of the configuration that must be the same on all ranks.
func (p *inputs) configured() []fact {
	facts := []fact{{"the program", strings.TrimSpace(p.env.Version + " " + p.env.Commit)},
		{"the precision", p.On.Precision().String()}}
	for _, k := range parameters(p.spec) {
		if !slices.ContainsFunc(perRank, func(name string) bool {
			return k.Key == name || strings.HasSuffix(name, ".") && strings.HasPrefix(k.Key, name)
		}) {
			facts = append(facts, fact{k.Key, k.Value})
		}
	}
	return facts
}

// compareRanks returns an error if a rank begins in another state than rank 0: with another base model, other rows,
// another place in the rows, another adapter or optimizer state, other plans, or other software, which rounds
// differently. For a base model's weights it compares names, types, shapes and the first and last bytes, not every
// byte.
func (r *loaded) compareRanks() error {
	if r.env.team == nil {
		return nil
	}
	params, err := r.step.Trained.Snapshot(r.memory)
	if err != nil {
		return err
	}
	adapterSum, states := sha256.New(), sha256.New()
	for _, p := range params {
		io.WriteString(adapterSum, p.Name)                    //nolint:errcheck // writing to a hash never fails
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
	state, software := r.windows.State(), r.On.Software()
	return r.env.team.same("what the ranks begin with", []fact{
		{"the base model's weights", r.Base.Fingerprint()[:16]},
		{"the rows", state.Data},
		{"the place in the rows", state.At},
		{"the number of steps", fmt.Sprint(r.total)},
		{"the adapter", sum(adapterSum)},
		{"the optimizer's state", sum(states)},
		{"the layout", r.found.Layout.String()},
		{"the plan", sum(plans)},
		{"the device", r.On.Name()},
		{"the kernels", software.Kernels},
		{"the driver", software.Driver},
		{"the libraries", strings.Join(software.Libraries, ", ")},
		{"the libraries' choice of algorithms", software.Algorithms},
	})
}
