package fit

import (
	"errors"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// Keys are the keys of a configuration that decide which layouts a run may take.
type Keys struct {
	Checkpointing string // training.gradient_checkpointing
	Dequantised   string // training.dequantised_weights
	Sharding      string // training.base_sharding
	Offload       string // training.optimizer_offload
	States        string // training.optimizer_sharding
}

// checkpointing lists the modes that each value of gradient_checkpointing allows, in the order they are tried.
var checkpointing = map[string][]graph.Recompute{
	"auto":      {graph.KeepAll, graph.RecomputeCheap, graph.RecomputeLayers, graph.Offload},
	"none":      {graph.KeepAll},
	"selective": {graph.RecomputeCheap},
	"full":      {graph.RecomputeLayers},
	"offload":   {graph.Offload},
}

// Check returns an error if the keys require slices over ranks and the run has one rank.
func (k Keys) Check(ranks int) error {
	if k.States == "always" && ranks < 2 {
		return errors.New("optimizer_sharding: always needs several devices, and this run has one: " +
			"say how many by devices, or write auto")
	}
	if k.Sharding == "always" && ranks < 2 {
		return errors.New("base_sharding: always needs several devices, and this run has one: " +
			"say how many by devices, or write auto")
	}
	return nil
}

// Layouts returns the layouts that the keys allow on a machine with these capabilities, fastest first: dequantised
// weights while no layer is recomputed, and a sharded base model if the whole model does not fit. quantised says that
// the base weights are quantised.
func (k Keys) Layouts(can graph.Capabilities, quantised bool, ranks int) []session.Layout {
	modes := checkpointing[k.Checkpointing]
	if !can.SeparateHost && len(modes) > 1 {
		modes = modes[:len(modes)-1] // offloading moves bytes within the same memory
	}
	var all []session.Layout
	if quantised && k.Dequantised == "auto" && can.KeepDequantised {
		all = append(all, session.Layout{Dequantised: true, Recompute: modes[0]})
	}
	for _, mode := range modes {
		always := k.Dequantised == "always"
		all = append(all, session.Layout{Dequantised: quantised && always, Experts: always, Recompute: mode})
	}
	for i := range all {
		all[i].OffloadStates = k.Offload == "always" && can.SeparateHost
		all[i].ShardStates = k.States == "always" && ranks > 1
	}
	return k.sharded(all, ranks)
}

// sharded adds the layouts with a sharded base model, in which each rank has a slice, after those in which each rank
// has the whole model. Weights that are dequantised by choice are not gathered, so such a layout is not sharded.
func (k Keys) sharded(all []session.Layout, ranks int) []session.Layout {
	if k.Sharding == "never" || ranks < 2 {
		return all
	}
	var sharded []session.Layout
	for _, l := range all {
		if !l.Dequantised || k.Dequantised == "always" {
			l.Shards = ranks
			sharded = append(sharded, l)
		}
	}
	if k.Sharding == "always" {
		return sharded
	}
	return append(all, sharded...)
}
