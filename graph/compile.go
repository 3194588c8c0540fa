package graph

import "slices"

// pass is one step from the recorded calls to a plan. It rewrites the calls, checks them, or says where something lies.
type pass struct {
	name string
	on   machines
	run  func(c *compilation) error
}

// passes is all that happens between the recorded calls and the plan, in order. A machine takes those of its kind.
var passes = []pass{
	// of the computation as it was recorded
	{"keep what is read", onAll, keepLive},
	{"check overwrites", onAll, checkOverwrites},
	{"rows apart", onGPU, takeRowsApart},
	{"read gathered rows", onGPU, readGathered},
	{"residual low bits", onGPU, keepLowBits},
	{"accumulate heads", onAll, accumulateHeads},
	{"order sums", onAll, orderSums},
	{"accumulate", onAll, accumulate},
	// what is kept for the backward pass
	{"recompute", onAll, recompute},
	{"offload", onAll, offload},
	// fewer and larger kernels
	{"fp8 frozen GEMMs", onGPU, multiplyFP8},
	{"fp32 residual terms", onGPU, storeTermsAsFP32},
	{"sum GEMMs", onGPU, sumGEMMs},
	{"group GEMMs", onGPU, groupGEMMs},
	{"pair gradients' GEMMs", onGPU, pairGradients},
	{"fuse experts' updates", onGPU, fuseExpertUpdates},
	{"fuse sums and norms", onGPU, fuseSumsAndNorms},
	{"fuse norms and rotations", onGPU, fuseNormsAndRotations},
	{"fuse rotations and caches", onGPU, fuseRotationsAndCaches},
	{"share rows", onGPU, shareRows},
	{"begin early", onGPU, beginEarly},
	{"begin early at joins", onGPU, beginEarlyAtJoins},
	// memory
	{"check segments", onAll, checkSegments},
	{"list inputs", onAll, listInputs},
	{"element types", onAll, assignStorage},
	{"check bodies", onAll, checkServed},
	{"sink wide values", onAll, sinkWide},
	{"schedule early", onAll, scheduleEarly},
	{"shard frozen values", onAll, shardFrozen},
	{"lay out memory", onAll, layOut},
}

// machines is a set of kinds of machine.
type machines uint8

const (
	onCPU machines = 1 << iota
	onGPU
	onAll = onCPU | onGPU
)

// passesOn returns those of a kind of machine.
func passesOn(m machines) []pass {
	return slices.DeleteFunc(slices.Clone(passes), func(p pass) bool { return p.on&m == 0 })
}

// compilation is a plan in the making.
type compilation struct {
	*Plan
	builder *Builder
	target  target
}

// Compile makes a plan of everything the outputs and the updates of State depend on. Outputs can be read
// after a run. workers is the number of CPU threads that scratch memory is reckoned for. A computation is
// compiled once: the plan rewrites its calls.
func (b *Builder) Compile(workers int, outputs ...*Value) (*Plan, error) {
	return b.compile(hostTarget{workers}, false, outputs)
}

// compile runs the target's passes. open: frozen values are stored as their readers want them.
func (b *Builder) compile(t target, open bool, outputs []*Value) (*Plan, error) {
	b.Fail(b.checkCompile(outputs))
	if b.err != nil {
		return nil, b.err
	}
	b.compiled = true
	c := &compilation{&Plan{segments: b.segments, outputs: outputs, calls: b.calls, place: map[*Value]place{},
		scratch: map[*call]place{},
		open:    open, constants: t.constants(), transient: b.transient}, b, t}
	for _, p := range t.passes() {
		if slices.Contains(b.left, p.name) {
			continue
		}
		if err := p.run(c); err != nil {
			return nil, err
		}
	}
	return c.Plan, nil
}
