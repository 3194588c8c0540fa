package train

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/session"
)

// ErrSlowPath is wrapped by the error of a run with training.strict that would leave a fast path.
var ErrSlowPath = errors.New("the run would leave a fast path")

// Costs of memory layouts relative to the one that keeps all activations, medians of steps on an H200.
const (
	costPacked = "a step takes 2 to 4 % longer at 4x2048 tokens, 30 % at 1x512 (1.1B and 7B, H200, " +
		"docs/internals/decisions/0015-memory-ways.md)"
	costSelective = "a step takes 5 % longer where all layers do it (1.1B 4x2048, H200, " +
		"docs/internals/decisions/0015-memory-ways.md)"
	costFull = "a step takes 32 to 38 % longer where all layers do it (1.1B and 7B, H200, " +
		"docs/internals/decisions/0015-memory-ways.md)"
	costOffload = "a step takes 36 to 38 % longer (1.1B and 7B 4x2048, H200, " +
		"docs/internals/decisions/0015-memory-ways.md)"
	costSlices = "a step takes 5 % longer over NVLink (7B 4x2048, two H200s, " +
		"docs/internals/decisions/0061-base-in-slices.md), more over PCIe"
)

// slowPaths returns the fast paths that the plan does not take although no key switches them off: those of the machine,
// of its calls, and of layouts that auto passed over for lack of memory. A slow path that the configuration names is
// not listed.
func (p *planner) slowPaths() []graph.SlowPath {
	all := graph.SlowPaths(p.On, p.found.Step.plans()...)
	return append(all, slowLayout(p.found.Layout, p.layouts(p.spec.Training.GradientCheckpointing)[0], p.spec.Training,
		p.On.Capabilities().Async)...)
}

// slowLayout returns what a layout does slower than the fastest allowed one. measured says that the device resembles
// those that were timed.
func slowLayout(l, fastest session.Layout, c Config, measured bool) (all []graph.SlowPath) {
	add := func(cost, remedy, format string, args ...any) {
		if !measured {
			cost = kernel.NotMeasured
		}
		all = append(all, graph.SlowPath{What: fmt.Sprintf(format, args...), Cost: cost, Remedy: remedy})
	}
	const smaller = "a smaller training.batch_size or dataset.max_length, a larger vram or device"
	if fastest.Dequantised && (!l.Dequantised || l.Linears > 0) {
		which := "the quantised weights stay packed"
		if l.Dequantised {
			which = fmt.Sprintf("the quantised weights behind the first %d linear layers stay packed", l.Linears)
		}
		add(costPacked, smaller+", or training.dequantised_weights: never, which asks for it",
			"%s, as there is no memory for them dequantised", which)
	}
	if l.Recompute != fastest.Recompute {
		cost, timed := map[graph.Recompute]string{graph.RecomputeCheap: costSelective, graph.RecomputeLayers: costFull,
			graph.Offload: costOffload}[l.Recompute]
		if !timed {
			cost = kernel.NotMeasured
		}
		where := ""
		if l.Layers > 0 {
			where = fmt.Sprintf(" in the first %d layers", l.Layers)
		}
		remedy := smaller
		if !l.Recompute.KeepsAttention() { // no key asks for those modes
			remedy += fmt.Sprintf(", or training.gradient_checkpointing: %v, which asks for it", l.Recompute)
		}
		add(cost, remedy,
			"gradient_checkpointing auto takes %v%s, as there is no memory for all activations", l.Recompute, where)
	}
	if l.LossRows > 0 {
		add(kernel.NotMeasured, smaller,
			"the loss is worked out for %d rows at a time, as there is no memory for more logits", l.LossRows)
	}
	if l.OffloadStates && c.OptimizerOffload == "auto" {
		add(kernel.NotMeasured, smaller+", an optimizer with smaller states, or training.optimizer_offload: always, "+
			"which asks for it", "optimizer_offload auto keeps the optimizer's states in host memory, as they do "+
			"not fit")
	}
	if l.ShardStates && c.OptimizerSharding == "auto" {
		add(kernel.NotMeasured, smaller+", an optimizer with smaller states, or training.optimizer_sharding: always, "+
			"which asks for it", "optimizer_sharding auto cuts the optimizer's states into slices, as they do not fit "+
			"whole")
	}
	if l.Sharded() && c.BaseSharding == "auto" {
		add(costSlices, smaller+", or training.base_sharding: always, which asks for it",
			"base_sharding auto cuts the base model into slices, as it fits whole on no device")
	}
	return all
}

// checkStrict returns an error if training.strict is set and the run leaves a fast path.
func (p *planner) checkStrict() error {
	if !p.spec.Training.Strict {
		return nil
	}
	slow := p.slowPaths()
	if len(slow) == 0 {
		return nil
	}
	var lines strings.Builder
	for _, s := range slow {
		lines.WriteString("\n  " + s.String())
	}
	return fmt.Errorf("%w, which training.strict refuses:%s", ErrSlowPath, lines.String())
}
