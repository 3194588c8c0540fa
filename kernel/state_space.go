package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/simd"
)

// StateSpace is the selective state-space scan of Mamba-2 with its gate (Dao and Gu, "Transformers are SSMs:
// Generalized Models and Efficient Algorithms Through Structured State Space Duality", 2024): a matrix for each head,
// which decays by a factor that the token chooses and takes the token up.
//
//	parts f[M,2*H*P+2*G*N+H], bias w[H], logA w[H], skip w[H], cu i32[S+1] -> y f[M,H*P]
//	dt = clamp(softplus(dt + bias), MinStep, MaxStep),  a = exp(-exp(logA) * dt)
//	S = a S + dt x Bᵀ,  y = (S C + skip x) * silu(z), token by token; S [P,N] is zero before a sequence's first
//
// A row of parts holds z [H,P], x [H,P], B [G,N], C [G,N] and dt [H], as in_proj leaves them. Head h reads B and C of
// group h/(H/G). Sequence s has the rows cu[s]..cu[s+1]: the state is reset at its border. A row that is in no sequence
// gives zeros.
type StateSpace struct {
	Heads, Groups int
	State         int // N
	// MinStep and MaxStep are the limits of dt. A MaxStep of 0 means that there is no upper limit.
	MinStep, MaxStep float64
}

// Name returns the operation's stem.
func (StateSpace) Name() string { return "state_space" }

// Shape checks the inputs and returns the outputs' types.
func (o StateSpace) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[H]", "w[H]", "w[H]", "i32[S]")
	if err != nil {
		return nil, err
	}
	size, err := o.check(in, d)
	if err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), o.Heads*size)}, nil
}

// check returns P, the columns of a head.
func (o StateSpace) check(in []Type, d Dims) (int, error) {
	if o.Heads < 1 || o.Groups < 1 || o.Heads%o.Groups != 0 {
		return 0, fmt.Errorf("%d heads in %d groups, want a whole number for each", o.Heads, o.Groups)
	}
	if d.At('H') != o.Heads {
		return 0, fmt.Errorf("input 1 is %v, want a number for each of %d heads", in[1], o.Heads)
	}
	inner := d.At('W') - 2*o.Groups*o.State - o.Heads
	if o.State < 1 || inner < 2*o.Heads || inner%(2*o.Heads) != 0 {
		return 0, fmt.Errorf("input 0 is %v: it does not hold two parts of %d heads, two of %d groups of %d numbers "+
			"and a step for each head", in[0], o.Heads, o.Groups, o.State)
	}
	if o.MinStep < 0 || o.MaxStep != 0 && o.MaxStep < o.MinStep {
		return 0, fmt.Errorf("steps from %g to %g, want limits in order", o.MinStep, o.MaxStep)
	}
	if d.At('S') < 1 {
		return 0, fmt.Errorf("the sequence bounds are %v, want one more than there are sequences", in[4])
	}
	return inner / (2 * o.Heads), nil
}

// Grads computes the gradient of input 0.
func (o StateSpace) Grads() Backward {
	return Backward{
		Calls: []Call{{StateSpaceGrad(o), []Ref{In(0), In(1), In(2), In(3), In(4), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), {}, {}, {}, {}},
	}
}

// Scratch returns the bytes of all workers' memory.
func (o StateSpace) Scratch(in []Type, workers int) int64 {
	return int64(workers) * o.forwardSlot(in[0])
}

// CPU binds the operation to memory.
func (o StateSpace) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], stateSpace[float32], stateSpace[float64])(c, o, in, out)
}

// headSize returns P where the parts are of type t.
func (o StateSpace) headSize(t Type) int {
	return (t.Shape[1] - 2*o.Groups*o.State - o.Heads) / (2 * o.Heads)
}

// flops returns the operations of so many multiply-adds for each number of the states and every token.
func (o StateSpace) flops(parts Type, times int) int64 {
	return 2 * int64(times) * int64(parts.Shape[0]) * int64(o.Heads) * int64(o.State) * int64(o.headSize(parts))
}

// Cost counts the bytes of inputs and outputs, and the multiply-adds.
func (o StateSpace) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), o.flops(in[0], 3)}
}

// StateSpaceGrad is the gradient of StateSpace for parts.
//
//	the inputs, dy f[M,H*P] -> dparts
//
// With do = dy*silu(z) and G the gradient of S behind a token, from the last token to the first:
//
//	G = G + do Cᵀ,  dC = Sᵀdo,  dx = skip do + dt G B,  dB = dt Gᵀx,  ddt = xᵀG B - exp(logA) a <G, S'>,  G = a G
//
// S' is S before the token. dC and dB are sums over the heads of a group, in a fixed order. States are recomputed, from
// those kept at every so many tokens. Beyond the limits of dt its gradient is zero.
type StateSpaceGrad StateSpace

// Name returns the operation's stem.
func (StateSpaceGrad) Name() string { return "state_space_grad" }

// Shape checks the inputs and returns the outputs' types.
func (o StateSpaceGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[H]", "w[H]", "w[H]", "i32[S]", "f[M,O]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 5); err != nil {
		return nil, err
	}
	size, err := StateSpace(o).check(in, d)
	if err != nil {
		return nil, err
	}
	if d.At('O') != o.Heads*size {
		return nil, fmt.Errorf("input 5 is %v, want %d columns, %d for each head", in[5], o.Heads*size, size)
	}
	return []Type{in[0]}, nil
}

// Scratch returns the bytes of all workers' memory.
func (o StateSpaceGrad) Scratch(in []Type, workers int) int64 {
	s := StateSpace(o)
	return int64(workers)*s.backwardSlot(in[0]) + int64(s.shares()*in[0].Shape[0]*s.shared()*in[0].DType.Size())
}

// CPU binds the operation to memory.
func (o StateSpaceGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], stateSpaceGrad[float32], stateSpaceGrad[float64])(c, StateSpace(o), in, out)
}

// Cost counts the bytes of inputs and outputs, and the multiply-adds.
func (o StateSpaceGrad) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), StateSpace(o).flops(in[0], 9)}
}

// shared returns the columns of a row that the heads of a group share: those of B and of C.
func (o StateSpace) shared() int { return 2 * o.Groups * o.State }

// shares returns into how many parts a group's heads are divided for the gradients of B and C. Each part sums its
// heads, and the sums are added in order: the result does not depend on the number of workers.
func (o StateSpace) shares() int { return min(4, o.Heads/o.Groups) }

// stateSpaceHeads is what the scan's bodies share.
type stateSpaceHeads[F Float] struct {
	StateSpace
	loops            *simd.Loops[F]
	P, width, rows   int // of a head; of a row of parts
	group            int // heads of a group
	cu               []int32
	parts            []F
	bias, logA, skip []F
}

// newStateSpaceHeads also returns the work that reads the frozen inputs at the start of every run; nil = there is none.
func newStateSpaceHeads[F Float](o StateSpace, in []Tensor) (*stateSpaceHeads[F], func()) {
	h := &stateSpaceHeads[F]{StateSpace: o, loops: simd.Best[F](), P: o.headSize(in[0].Type), width: in[0].Shape[1],
		rows: in[0].Shape[0], group: o.Heads / o.Groups, cu: in[4].I32(), parts: Floats[F](in[0])}
	var load func()
	for i, row := range []*[]F{&h.bias, &h.logA, &h.skip} {
		var own func()
		if *row, own = frozenRow[F](in[1+i]); own != nil {
			load = after(load, own)
		}
	}
	return h, load
}

// z and x return a head's columns of a row of parts, or of its gradient; b and c return a group's.
func (h *stateSpaceHeads[F]) z(m []F, t, head int) []F { return m[t*h.width+head*h.P:][:h.P] }
func (h *stateSpaceHeads[F]) x(m []F, t, head int) []F { return h.z(m, t, h.Heads+head) }
func (h *stateSpaceHeads[F]) b(m []F, t, group int) []F {
	return m[t*h.width+2*h.Heads*h.P+group*h.State:][:h.State]
}
func (h *stateSpaceHeads[F]) c(m []F, t, group int) []F { return h.b(m, t, h.Groups+group) }

// step returns the place of a head's dt in a row of parts.
func (h *stateSpaceHeads[F]) step(t, head int) int { return (t+1)*h.width - h.Heads + head }

// y returns a head's columns of a row of the output, or of its gradient.
func (h *stateSpaceHeads[F]) y(m []F, t, head int) []F { return m[(t*h.Heads+head)*h.P:][:h.P] }

// decay returns a head's dt at a token, the factor a by which its state decays, and the slope of dt for the input.
func (h *stateSpaceHeads[F]) decay(t, head int) (dt, a, slope float64) {
	x := float64(h.parts[h.step(t, head)]) + float64(h.bias[head])
	dt, slope = max(x, 0)+math.Log1p(math.Exp(-math.Abs(x))), sigmoid(x)
	if dt < h.MinStep {
		dt, slope = h.MinStep, 0
	}
	if h.MaxStep > 0 && dt > h.MaxStep {
		dt, slope = h.MaxStep, 0
	}
	return dt, math.Exp(-math.Exp(float64(h.logA[head])) * dt), slope
}

// update takes token t up in a head's state.
func (h *stateSpaceHeads[F]) update(state []F, t, head int) {
	dt, a, _ := h.decay(t, head)
	x, b := h.x(h.parts, t, head), h.b(h.parts, t, head/h.group)
	for p, v := range x {
		h.loops.Blend(state[p*h.State:][:h.State], F(a), b, F(dt)*v)
	}
}

// read writes S C + skip x of token t.
func (h *stateSpaceHeads[F]) read(o, state []F, t, head int) {
	x, c, skip := h.x(h.parts, t, head), h.c(h.parts, t, head/h.group), h.skip[head]
	for p, v := range x {
		o[p] = h.loops.Dot(state[p*h.State:][:h.State], c) + skip*v
	}
}

// clearRest writes zeros where rows are in no sequence.
func (h *stateSpaceHeads[F]) clearRest(m []F) {
	width := len(m) / max(h.rows, 1)
	from, to := covered(h.cu, h.rows)
	clear(m[:from*width])
	clear(m[to*width:])
}

// forwardSlot returns a worker's memory in bytes: a state.
func (o StateSpace) forwardSlot(parts Type) int64 {
	return int64(o.State*o.headSize(parts)) * int64(parts.DType.Size())
}

// forward runs the tokens first..end of a head from a state, which becomes that behind the last token.
func (h *stateSpaceHeads[F]) forward(out, state []F, first, end, head int) {
	for t := first; t < end; t++ {
		y := h.y(out, t, head)
		h.update(state, t, head)
		h.read(y, state, t, head)
		h.loops.SwiGLU(y, h.z(h.parts, t, head), y)
	}
}

func stateSpace[F Float](c *CPU, o StateSpace, in, out []Tensor) func() {
	h, load := newStateSpaceHeads[F](o, in)
	y, slots := Floats[F](out[0]), newSlots[F](c.Scratch, c.Workers(), o.forwardSlot(in[0].Type))
	task := func(i int) {
		slot, state := slots.take()
		s, head := i/o.Heads, i%o.Heads
		clear(state)
		h.forward(y, state, int(h.cu[s]), min(int(h.cu[s+1]), h.rows), head)
		slots.give(slot)
	}
	pool, tasks := c.Pool, (len(h.cu)-1)*o.Heads
	return after(load, func() {
		h.clearRest(y)
		pool.Parallel(tasks, task)
	})
}

// stateSpaceStretch returns how many tokens lie between two states that are kept of n tokens: as many states are kept
// as are then recomputed.
func stateSpaceStretch(n int) int { return max(1, int(math.Ceil(math.Sqrt(float64(n))))) }

// backwardSlot returns a worker's memory in bytes: the states kept, those of a stretch, the gradient of one, and three
// rows of a head.
func (o StateSpace) backwardSlot(parts Type) int64 {
	P, n := o.headSize(parts), stateSpaceStretch(parts.Shape[0])
	return int64((2*n+2)*P*o.State+3*P) * int64(parts.DType.Size())
}

// stateSpaceBack is the backward pass of some heads of a sequence's group.
type stateSpaceBack[F Float] struct {
	*stateSpaceHeads[F]
	dy, dparts []F
	sums       []F // [shares,M,2*G*N], of the gradients of B and C
	stretch    int
	slots      *slots[F]
}

// stateSpaceMemory is a worker's memory.
type stateSpaceMemory[F Float] struct {
	kept   []F // [stretch] states, the first of each stretch
	states []F // [stretch+1] states of the current stretch; the first is the state before it
	grad   []F // of the state
	o      []F // [P], S C + skip x
	do     []F // [P]
	unread []F // [P]
}

func (b *stateSpaceBack[F]) cut(mem []F) (m stateSpaceMemory[F]) {
	cut := func(n int) (part []F) { part, mem = mem[:n], mem[n:]; return part }
	size, n := b.P*b.State, b.stretch
	m.kept, m.states, m.grad = cut(n*size), cut((n+1)*size), cut(size)
	m.o, m.do, m.unread = cut(b.P), cut(b.P), cut(b.P)
	return m
}

// task runs share i%shares of a sequence's group.
func (b *stateSpaceBack[F]) task(i int) {
	slot, mem := b.slots.take()
	m, shares := b.cut(mem), b.shares()
	share, group, s := i%shares, i/shares%b.Groups, i/shares/b.Groups
	first, end := int(b.cu[s]), min(int(b.cu[s+1]), b.rows)
	for t := first; t < end; t++ {
		clear(b.sum(share, t, group))
		clear(b.sum(share, t, b.Groups+group))
	}
	for head := share * b.group / shares; head < (share+1)*b.group/shares; head++ {
		b.head(&m, first, end, group*b.group+head, share)
	}
	b.slots.give(slot)
}

// sum returns a share's sum of the gradient of B of a group at token t, or of C where group is Groups more.
func (b *stateSpaceBack[F]) sum(share, t, group int) []F {
	return b.sums[((share*b.rows+t)*2*b.Groups+group)*b.State:][:b.State]
}

func (b *stateSpaceBack[F]) head(m *stateSpaceMemory[F], first, end, head, share int) {
	size := b.P * b.State
	state := m.states[:size]
	clear(state)
	for t := first; t < end; t++ {
		if at := t - first; at%b.stretch == 0 {
			copy(m.kept[at/b.stretch*size:], state)
		}
		b.update(state, t, head)
	}
	clear(m.grad)
	for n := (end - first - 1) / b.stretch; n >= 0 && first < end; n-- {
		from := first + n*b.stretch
		to := min(from+b.stretch, end)
		copy(m.states[:size], m.kept[n*size:])
		for t := from; t < to; t++ {
			next := m.states[(t-from+1)*size:][:size]
			copy(next, m.states[(t-from)*size:])
			b.update(next, t, head)
		}
		for t := to - 1; t >= from; t-- {
			b.token(m, t, head, share, m.states[(t-from)*size:][:size], m.states[(t-from+1)*size:][:size])
		}
	}
}

// token goes one token back: from the gradient of the state behind it to that of the state before it.
func (b *stateSpaceBack[F]) token(m *stateSpaceMemory[F], t, head, share int, before, behind []F) {
	N, group, loops := b.State, head/b.group, b.loops
	b.read(m.o, behind, t, head)
	for p := range m.do {
		m.unread[p] = 1
	}
	z, dz := b.z(b.parts, t, head), b.z(b.dparts, t, head)
	loops.SwiGLU(m.do, z, b.y(b.dy, t, head))
	loops.SwiGLUGrad(dz, m.unread, z, m.o, b.y(b.dy, t, head))
	x, dx, B, C := b.x(b.parts, t, head), b.x(b.dparts, t, head), b.b(b.parts, t, group), b.c(b.parts, t, group)
	dB, dC := b.sum(share, t, group), b.sum(share, t, b.Groups+group)
	dt, a, slope := b.decay(t, head)
	var ddt, kept float64 // kept is <G, S'>
	for p, do := range m.do {
		row := m.grad[p*N:][:N]
		loops.Blend(row, 1, C, do)
		loops.Blend(dC, 1, behind[p*N:][:N], do)
		taken := loops.Dot(row, B)
		ddt += float64(x[p]) * float64(taken)
		kept += float64(loops.Dot(row, before[p*N:][:N]))
		dx[p] = b.skip[head]*do + F(dt)*taken
		loops.Blend(dB, 1, row, F(dt)*x[p])
		loops.Scale(row, row, F(a))
	}
	b.dparts[b.step(t, head)] = F((ddt - math.Exp(float64(b.logA[head]))*a*kept) * slope)
}

// add writes the gradients of B and C of rows lo..hi, the sums of all shares.
func (b *stateSpaceBack[F]) add(lo, hi int) {
	from, to := covered(b.cu, b.rows)
	n := b.shared()
	for t := max(lo, from); t < min(hi, to); t++ {
		row := b.dparts[t*b.width+2*b.Heads*b.P:][:n]
		copy(row, b.sums[t*n:])
		for share := 1; share < b.shares(); share++ {
			b.loops.Blend(row, 1, b.sums[(share*b.rows+t)*n:][:n], 1)
		}
	}
}

func stateSpaceGrad[F Float](c *CPU, o StateSpace, in, out []Tensor) func() {
	h, load := newStateSpaceHeads[F](o, in)
	slot := o.backwardSlot(in[0].Type)
	b := &stateSpaceBack[F]{stateSpaceHeads: h, dy: Floats[F](in[5]), dparts: Floats[F](out[0]),
		sums:    carve[F](c.Scratch[int64(c.Workers())*slot:], o.shares()*h.rows*o.shared()),
		stretch: stateSpaceStretch(h.rows), slots: newSlots[F](c.Scratch, c.Workers(), slot)}
	pool, tasks, task, add := c.Pool, (len(h.cu)-1)*o.Groups*o.shares(), b.task, c.Range(h.rows, convRows, b.add)
	return after(load, func() {
		h.clearRest(b.dparts)
		pool.Parallel(tasks, task)
		add()
	})
}

// StateSpaceCached is StateSpace of the next tokens of several sequences. Each sequence has the state behind its
// earlier tokens in a slot.
//
//	the inputs of StateSpace, cuK i32[S+1], state f[R,H*P*N] -> y f[M,H*P], state'
//
// Slots and sequences are as in CausalConvCached.
type StateSpaceCached struct {
	Scan   StateSpace
	Tokens int // the most tokens of a slot's sequence
}

// Name returns the operation's stem.
func (StateSpaceCached) Name() string { return "state_space_cached" }

// Shape checks the inputs and returns the outputs' types.
func (o StateSpaceCached) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "w[H]", "w[H]", "w[H]", "i32[S]", "i32[S]", "f[R,L]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 6); err != nil {
		return nil, err
	}
	size, err := o.Scan.check(in, d)
	if err != nil {
		return nil, err
	}
	if want := o.Scan.Heads * size * o.Scan.State; d.At('L') != want {
		return nil, fmt.Errorf("input 6 is %v, want %d columns: %d matrices of %d rows and %d columns", in[6], want,
			o.Scan.Heads, size, o.Scan.State)
	}
	if o.Tokens < 1 {
		return nil, fmt.Errorf("attribute Tokens is %d, want at least 1", o.Tokens)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Scan.Heads*size), in[6]}, nil
}

// Overwrites keeps the slots' states in place.
func (StateSpaceCached) Overwrites() []Alias { return []Alias{{1, 6}} }

// CPU binds the operation to memory.
func (o StateSpaceCached) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], stateSpaceCached[float32], stateSpaceCached[float64])(c, o, in, out)
}

func stateSpaceCached[F Float](c *CPU, o StateSpaceCached, in, out []Tensor) func() {
	h, load := newStateSpaceHeads[F](o.Scan, in)
	y, states, cuK, slots, size := Floats[F](out[0]), Floats[F](out[1]), in[5].I32(), in[6].Shape[0], h.P*h.State
	task := func(i int) {
		s, head := i/h.Heads, i%h.Heads
		first, end, slot := int(h.cu[s]), min(int(h.cu[s+1]), h.rows), int(cuK[s])/o.Tokens
		if first >= end || slot >= slots {
			return
		}
		state := states[(slot*h.Heads+head)*size:][:size]
		if int(cuK[s+1]-cuK[s]) <= end-first {
			clear(state)
		}
		h.forward(y, state, first, end, head)
	}
	pool, tasks := c.Pool, (len(h.cu)-1)*h.Heads
	return after(load, func() {
		h.clearRest(y)
		pool.Parallel(tasks, task)
	})
}

// Cost counts the rows alone, and one state.
func (o StateSpaceCached) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in[:6], out[:1]), o.Scan.flops(in[0], 3)}
}

// Stored keeps the frozen numbers of the heads in fp32.
func (StateSpace) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, F32, F32, I32}, []DType{ComputeType}
}

// CheckGPU refuses heads and states that no device code serves.
func (o StateSpace) CheckGPU(in, _ []Type, _ int) error {
	if P := o.headSize(in[0]); !cuda.FitsStateSpace(P, o.State) {
		return fmt.Errorf("heads of %d with states of %d: want at most 64 with at most 256, or 128 with 128", P,
			o.State)
	}
	return nil
}

// ScratchGPU returns 0: a state is in registers.
func (StateSpace) ScratchGPU([]Type, []Type, int) int64 { return 0 }

// Stored keeps the frozen numbers of the heads in fp32.
func (StateSpaceGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, F32, F32, I32, ComputeType}, []DType{ComputeType}
}

// CheckGPU refuses heads and states that no device code serves.
func (o StateSpaceGrad) CheckGPU(in, out []Type, sm int) error {
	return StateSpace(o).CheckGPU(in, out, sm)
}

func (o StateSpaceGrad) scratch(parts Type) cuda.StateSpaceScratch {
	return cuda.NewStateSpaceScratch(parts.Shape[0], o.Heads, o.Groups, o.State)
}

// ScratchGPU returns the bytes of the shares' sums of the gradients of B and C, and of a number for each token and
// head.
func (o StateSpaceGrad) ScratchGPU(in, _ []Type, _ int) int64 { return o.scratch(in[0]).Bytes }

// Stored keeps states in fp32.
func (StateSpaceCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, F32, F32, F32, I32, I32, F32}, []DType{ComputeType, F32}
}

// CheckGPU refuses heads and states that no device code serves.
func (o StateSpaceCached) CheckGPU(in, out []Type, sm int) error { return o.Scan.CheckGPU(in, out, sm) }

// ScratchGPU returns 0: a state is in registers.
func (StateSpaceCached) ScratchGPU([]Type, []Type, int) int64 { return 0 }
