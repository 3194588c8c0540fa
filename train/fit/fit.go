// Package fit chooses the memory layout of a training run.
//
// Solve takes a Problem: the layouts that the configuration allows, how to plan the step in one of them, the shapes of
// the micro-batches, and the memory limit. It returns a Choice, the first layout whose planned memory is within the
// limit, with its plan; or an error that names the nearest configuration that would fit. With training.on_oom: shrink
// the choice may also split each batch into smaller micro-batches (Batches.Split).
//
// The package plans nothing itself and allocates no memory: Problem.Try does the planning.
package fit

import (
	"fmt"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
)

// Values of training.on_oom, which decides about a run that does not fit in memory.
const (
	OnOOMStop   = "stop"
	OnOOMShrink = "shrink"
)

// Shapes are the largest micro-batches of a run.
type Shapes struct {
	Train   session.Shape
	Eval    session.Shape // zero without validation rows
	Several bool          // a step has several micro-batches
}

// Attempt is one way to plan the steps of a run.
type Attempt struct {
	Layout    session.Layout
	Shapes    Shapes
	Optimizer string // training.optimizer
	Sharing   int    // training.context_parallel_size: ranks that share a row's tokens
}

// Machine is the part of a device that the search reads.
type Machine interface {
	Name() string
	Capabilities() graph.Capabilities
}

// Batches deals the rows of a run in micro-batches and can deal them in other ways.
type Batches interface {
	// Shapes returns the largest micro-batches of the current division of the rows.
	Shapes() Shapes
	// Shape returns the properties that all training micro-batches share.
	Shape() dataset.Shape
	// Split deals each configured batch in pieces micro-batches, and returns the largest micro-batches of that
	// division.
	Split(pieces int) (Shapes, error)
	// Fewer returns the largest micro-batches of rows rows each. It does not change the division.
	Fewer(rows int) (Shapes, error)
	// Trains reports whether rows that are cut to length tokens leave a token to train on.
	Trains(length int) bool
	// ChooseBudgets chooses at most most token budgets.
	ChooseBudgets(most int)
	// Efficiency returns the part of an epoch's computed tokens that is not padding.
	Efficiency(epoch int) float64
}

// Problem is the input of the search for a layout. S is the type of a planned step.
type Problem[S any] struct {
	// Shapes are the largest micro-batches of the run as it is configured.
	Shapes Shapes
	// Layouts returns the layouts that a value of training.gradient_checkpointing allows, fastest first.
	Layouts func(checkpointing string) []session.Layout
	// Try plans the steps of an attempt.
	Try func(Attempt) (session.Planned[S], error)
	// Limit is the memory limit in bytes. A negative limit is not known, and the search takes the first layout.
	Limit int64

	Checkpointing string // training.gradient_checkpointing
	OnOOM         string // training.on_oom
	BatchSize     int    // training.batch_size
	Accumulation  int    // training.gradient_accumulation_steps
	Optimizer     string // training.optimizer
	Sharing       int    // training.context_parallel_size, at least 1
	// BatchTerm names the part of the loss that smaller micro-batches change (objective.BatchTerm); "" = none.
	BatchTerm string
	// Sharings are larger context_parallel_sizes that the run's ranks and the model allow, ascending.
	Sharings  []int
	Ranks     int     // number of ranks of the run
	Unsharded bool    // training.base_sharding: never
	Offload   string  // training.optimizer_offload
	States    string  // training.optimizer_sharding
	Quantised bool    // the base weights are quantised
	Smaller   string  // value of the key adapter that would quantise the base weights; "" = none
	Layers    int     // number of layers of the model
	Linears   []int64 // number of weights of each quantised linear layer
	// FixedLossRows keeps the search from computing the loss for fewer rows at a time than the layouts say.
	FixedLossRows bool

	Machine Machine
	// Free returns the bytes that each rank's device has free, and whether they are known.
	Free func() (bytes int64, known bool, err error)
	// Seconds estimates the time of a planned step; nil = no estimate is known for the machine.
	Seconds func(S) float64
	// HostLimit is the limit in bytes of values in host memory in layouts that Seconds chooses, and of optimizer states
	// there; 0 = not known.
	HostLimit int64
	// Calls returns the number of kernel calls of a planned step.
	Calls   func(S) int
	Batches Batches
}

// Choice is the chosen layout of a run. Problem.Batches deals the rows as the choice's plans need them.
type Choice[S any] struct {
	session.Found[S]
	Shapes Shapes
	Shrunk string // why batches are split, or more is recomputed than configured; "" = the run fits as configured
}

// Solve returns the first allowed layout within the limit. If none is, training.on_oom decides: either the batches are
// split, or the error, which wraps session.ErrDoesNotFit, names a configuration that would fit.
func (p Problem[S]) Solve() (Choice[S], error) {
	c, err := p.take(p.Layouts(p.Checkpointing), p.Limit, Choice[S]{Shapes: p.Shapes})
	if err != nil || c.Fits {
		return c, err
	}
	if p.OnOOM != OnOOMShrink || p.Limit == 0 {
		return c, p.refuse(c)
	}
	whole := c
	if c, err = p.shrink(p.Limit); err != nil {
		return c, err
	}
	if !c.Fits {
		return c, p.refuse(c)
	}
	c.Shrunk = fmt.Sprintf("the run does not fit as configured: with %v the plan needs %s, the limit is %s",
		whole.Layout, session.FormatBytes(whole.Need.Total()), session.FormatBytes(p.Limit))
	return c, nil
}

// take searches layouts for the first that is within the limit, with micro-batches of c's shapes.
func (p Problem[S]) take(layouts []session.Layout, limit int64, c Choice[S]) (Choice[S], error) {
	search := p.search(layouts, limit, c.Shapes)
	var err error
	if c.Found, err = search.Run(); err != nil || !c.Fits {
		return c, err
	}
	return p.leaveForGraphs(search, c)
}

// search returns the search for the first of layouts within the limit.
func (p Problem[S]) search(layouts []session.Layout, limit int64, z Shapes) session.Search[S] {
	can := p.Machine.Capabilities()
	rows := min(can.LogitRows, max(z.Train.Tokens, z.Eval.Tokens))
	if p.FixedLossRows {
		rows = 0
	}
	seconds := p.Seconds
	if p.Checkpointing != "auto" {
		seconds = nil
	}
	return session.Search[S]{
		Layouts: layouts, Limit: limit,
		Try:    func(l session.Layout) (session.Planned[S], error) { return p.plan(l, z) },
		Layers: p.Layers, Linears: p.Linears,
		LossRows: rows, Overlaps: can.Overlap, Offload: p.offloads(), Shard: p.shards(), Seconds: seconds,
		HostLimit: p.HostLimit,
	}
}

// offloads reports whether the search may move the optimizer's states to host memory.
func (p Problem[S]) offloads() bool {
	return p.Offload == "auto" && p.Machine.Capabilities().SeparateHost
}

// shards returns over how many ranks the search may cut the optimizer's states; 0 = it may not.
func (p Problem[S]) shards() int {
	if p.States != "auto" || p.Ranks < 2 {
		return 0
	}
	return p.Ranks
}

// least returns the memory of a plan, without the optimizer's states that the search may move to host memory or to
// other ranks.
func (p Problem[S]) least(need graph.Bytes) int64 {
	if p.offloads() {
		return need.Total() - need.Movable
	}
	if n := int64(p.shards()); n > 0 {
		return need.Total() - need.Movable + need.Movable/n
	}
	return need.Total()
}

// plan plans the run in a layout, with its own optimizer and sharing.
func (p Problem[S]) plan(l session.Layout, z Shapes) (session.Planned[S], error) {
	return p.Try(Attempt{Layout: l, Shapes: z, Optimizer: p.Optimizer, Sharing: p.Sharing})
}

// morePadding is the additional share of padding that costs as much time as a leaner layout.
const morePadding = 0.03

// leaveForGraphs leaves memory to the driver for the captured graphs of the smaller token budgets. It chooses fewer
// budgets if that adds little padding, else a leaner layout, and if none fits, fewer budgets anyway.
func (p Problem[S]) leaveForGraphs(search session.Search[S], c Choice[S]) (Choice[S], error) {
	more := len(p.Batches.Shape().Budgets) - 1
	each := p.Machine.Capabilities().CapturedCall * int64(p.Calls(c.Step))
	free, known, err := p.Free()
	need := c.Need.Total()
	if err != nil || !known || each == 0 || more == 0 || need+int64(more)*each <= free {
		return c, err
	}
	all := p.Batches.Efficiency(0)
	p.Batches.ChooseBudgets(1 + int(max(free-need, 0)/each))
	if all-p.Batches.Efficiency(0) <= morePadding {
		return c, nil
	}
	if search.Limit = min(search.Limit, free-int64(more)*each); search.Limit < 0 {
		return c, nil
	}
	lean, err := search.Run()
	if err == nil && lean.Fits {
		c.Found = lean
		p.Batches.ChooseBudgets(dataset.MaxBudgets)
	}
	return c, err
}
