package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/cuda"
	"github.com/tierlora/tierlora/kernel/simd"
)

// GatedDelta is linear attention by the gated delta rule (Yang et al., "Gated Delta Networks: Improving Mamba2 with
// Delta Rule", 2024), as Qwen3-Next and Qwen3.5 have it: a matrix for each value head, which forgets, and is corrected
// by what it said wrongly.
//
//	qkv f[M,2*K*D+V*E], b f[M,V], a f[M,V], logA w[V], dt w[V], cu i32[S+1] -> o f[M,V*E]
//	q = normed(q) / sqrt(D), k = normed(k), normed(x) = x / sqrt(sum(x²) + 1e-6), each head by itself
//	g = exp(-exp(logA) * softplus(a + dt)),  beta = sigmoid(b)
//	S = g S,  e = v - Sᵀk,  S = S + k (beta e)ᵀ,  o = Sᵀq,  token by token; S [D,E] is zero before a sequence's first
//
// qkv holds the K heads of q, then those of k, then the V heads of v. Value head h reads key head h/(V/K). Sequence s
// has the rows cu[s]..cu[s+1]. A row that is in no sequence gives zeros.
type GatedDelta struct {
	KeyHeads, ValueHeads int
	KeySize              int // D
}

func (GatedDelta) Name() string { return "gated_delta" }

func (o GatedDelta) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "f[M,V]", "f[M,V]", "w[V]", "w[V]", "i32[S]")
	if err != nil {
		return nil, err
	}
	size, err := o.check(in, d, 0, 1, 2)
	if err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('M'), o.ValueHeads*size)}, nil
}

// check also gives the size of a value head.
func (o GatedDelta) check(in []Type, d Dims, floats ...int) (int, error) {
	if err := sameElements(in, floats...); err != nil {
		return 0, err
	}
	if o.KeyHeads <= 0 || o.ValueHeads <= 0 || o.ValueHeads%o.KeyHeads != 0 {
		return 0, fmt.Errorf("%d value heads over %d key heads, want a whole number for each", o.ValueHeads, o.KeyHeads)
	}
	if d.At('V') != o.ValueHeads {
		return 0, fmt.Errorf("input 1 is %v, want a column for each of %d value heads", in[1], o.ValueHeads)
	}
	values := d.At('W') - 2*o.KeyHeads*o.KeySize
	if o.KeySize < 1 || values < o.ValueHeads || values%o.ValueHeads != 0 {
		return 0, fmt.Errorf("input 0 is %v: it does not hold %d heads of q and of k of %d numbers each and %d heads of v", in[0], o.KeyHeads, o.KeySize, o.ValueHeads)
	}
	if d.At('S') < 1 {
		return 0, fmt.Errorf("the sequence bounds are %v, want one more than there are sequences", in[5])
	}
	return values / o.ValueHeads, nil
}

func (o GatedDelta) Grads() Backward {
	return Backward{
		Calls: []Call{{GatedDeltaGrad(o), []Ref{In(0), In(1), In(2), In(3), In(4), In(5), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1), FromCall(0, 2), {}, {}, {}},
	}
}

func (o GatedDelta) Scratch(in []Type, workers int) int64 {
	return int64(workers) * o.forwardSlot(in[0])
}

func (o GatedDelta) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatedDelta[float32], gatedDelta[float64])(c, o, in, out)
}

// valueSize returns E where qkv is of type t.
func (o GatedDelta) valueSize(t Type) int {
	return (t.Shape[1] - 2*o.KeyHeads*o.KeySize) / o.ValueHeads
}

// flops returns the operations of a multiply-add for each number of the matrices, so many times for every token.
func (o GatedDelta) flops(qkv Type, times int) int64 {
	return 2 * int64(times) * int64(qkv.Shape[0]) * int64(o.ValueHeads) * int64(o.KeySize) * int64(o.valueSize(qkv))
}

func (o GatedDelta) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), o.flops(in[0], 4)}
}

// GatedDeltaGrad are the gradients of GatedDelta for qkv, b and a.
//
//	the inputs, do f[M,V*E] -> dqkv f[M,W], db f[M,V], da f[M,V]
//
// With G the gradient of S behind a token, from the last token to the first:
//
//	G = G + q doᵀ,  dq = S do,  de = beta Gᵀk,  dbeta = eᵀ(Gᵀk),  dv = de
//	dk = beta G e - g S' de,  G = G - k deᵀ,  dg = <G, S'>,  G = g G
//
// S' is S before the token. States are recomputed, from those kept at every so many tokens.
type GatedDeltaGrad GatedDelta

func (GatedDeltaGrad) Name() string { return "gated_delta_grad" }

func (o GatedDeltaGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "f[M,V]", "f[M,V]", "w[V]", "w[V]", "i32[S]", "f[M,O]")
	if err != nil {
		return nil, err
	}
	size, err := GatedDelta(o).check(in, d, 0, 1, 2, 6)
	if err != nil {
		return nil, err
	}
	if d.At('O') != o.ValueHeads*size {
		return nil, fmt.Errorf("input 6 is %v, want %d columns, %d for each value head", in[6], o.ValueHeads*size, size)
	}
	return []Type{in[0], in[1], in[2]}, nil
}

func (o GatedDeltaGrad) Scratch(in []Type, workers int) int64 {
	return int64(workers) * GatedDelta(o).backwardSlot(in[0])
}

func (o GatedDeltaGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatedDeltaGrad[float32], gatedDeltaGrad[float64])(c, GatedDelta(o), in, out)
}

func (o GatedDeltaGrad) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in, out), GatedDelta(o).flops(in[0], 12)}
}

func (GatedDelta) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32}, []DType{ComputeType}
}

func (o GatedDelta) CheckGPU(in, _ []Type, sm int) error {
	if E := o.valueSize(in[0]); !cuda.FitsGatedDelta(o.KeySize, E) {
		return fmt.Errorf("heads of %d for queries and keys and of %d for values: want multiples of 4, the former at most 128", o.KeySize, E)
	}
	if sm < 80 {
		return fmt.Errorf("compute capability %d.%d, want 8.0 or later", sm/10, sm%10)
	}
	return nil
}

func (o GatedDelta) scratch(qkv Type) cuda.GatedDeltaScratch {
	return cuda.NewGatedDeltaScratch(qkv.Shape[0], o.ValueHeads, o.KeySize, o.valueSize(qkv))
}

// ScratchGPU returns the bytes prepared for a window of rows and, where there are several windows, of the states
// between them.
func (o GatedDelta) ScratchGPU(in, _ []Type, _ int) int64 { return o.scratch(in[0]).Bytes }

func (GatedDeltaGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32, ComputeType},
		[]DType{ComputeType, ComputeType, ComputeType}
}

func (o GatedDeltaGrad) CheckGPU(in, out []Type, sm int) error {
	return GatedDelta(o).CheckGPU(in, out, sm)
}

func (o GatedDeltaGrad) scratch(qkv Type) cuda.GatedDeltaGradScratch {
	return cuda.NewGatedDeltaGradScratch(qkv.DType.String(), qkv.Shape[0], o.ValueHeads, o.KeySize,
		GatedDelta(o).valueSize(qkv))
}

// ScratchGPU returns GatedDelta's scratch and the bytes of the states before the chunks of a window of rows and their
// gradients.
func (o GatedDeltaGrad) ScratchGPU(in, _ []Type, _ int) int64 { return o.scratch(in[0]).Bytes }

func (GatedDeltaCached) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType, F32, F32, I32, I32, F32}, []DType{ComputeType, F32}
}

func (o GatedDeltaCached) CheckGPU(in, out []Type, sm int) error { return o.Rule.CheckGPU(in, out, sm) }

// deltaHeads is what the bodies of the gated delta rule share. A task is a key head of a sequence, with its value heads
// in turn.
type deltaHeads[F Float] struct {
	GatedDelta
	loops     *simd.Loops[F]
	E, width  int // of a value head, of a row of qkv
	group     int // value heads of a key head
	rows      int
	cu        []int32
	qkv, b, a []F
	logA, dt  []F
}

// newDeltaHeads also gives the work that reads the frozen inputs at the start of every run; nil = there is none.
func newDeltaHeads[F Float](o GatedDelta, in []Tensor) (*deltaHeads[F], func()) {
	h := &deltaHeads[F]{GatedDelta: o, loops: simd.Best[F](), E: o.valueSize(in[0].Type), width: in[0].Shape[1],
		group: o.ValueHeads / o.KeyHeads,
		rows:  in[0].Shape[0], cu: in[5].I32(), qkv: Floats[F](in[0]), b: Floats[F](in[1]), a: Floats[F](in[2])}
	var first, second func()
	h.logA, first = frozenRow[F](in[3])
	h.dt, second = frozenRow[F](in[4])
	if second == nil {
		return h, first
	}
	return h, after(first, second)
}

// q, k and v are heads of a row of qkv, or of its gradient.
func (h *deltaHeads[F]) q(qkv []F, t, key int) []F { return qkv[t*h.width+key*h.KeySize:][:h.KeySize] }
func (h *deltaHeads[F]) k(qkv []F, t, key int) []F { return h.q(qkv, t, h.KeyHeads+key) }
func (h *deltaHeads[F]) v(qkv []F, t, value int) []F {
	return qkv[t*h.width+2*h.KeyHeads*h.KeySize+value*h.E:][:h.E]
}

// o returns a value head of a row of the output, or of its gradient.
func (h *deltaHeads[F]) o(o []F, t, value int) []F { return o[(t*h.ValueHeads+value)*h.E:][:h.E] }

const deltaNormEps = 1e-6

// normed writes x by over its norm, and gives what x was multiplied with but for by.
func (h *deltaHeads[F]) normed(dst, x []F, by float64) float64 {
	r := 1 / math.Sqrt(simd.LongDot(h.loops, x, x)+deltaNormEps)
	h.loops.Scale(dst, x, F(r*by))
	return r
}

// queryScale multiplies a normed query.
func (h *deltaHeads[F]) queryScale() float64 { return 1 / math.Sqrt(float64(h.KeySize)) }

// gates returns those of a value head at a token: how much of the state stays, and how much of its error is corrected.
func (h *deltaHeads[F]) gates(t, value int) (g, beta F) {
	i := t*h.ValueHeads + value
	return F(math.Exp(h.logDecay(t, value))), F(sigmoid(float64(h.b[i])))
}

func (h *deltaHeads[F]) logDecay(t, value int) float64 {
	x := float64(h.a[t*h.ValueHeads+value]) + float64(h.dt[value])
	return -math.Exp(float64(h.logA[value])) * (max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))) // softplus
}

// update is a token's of the state, without the output. e is v less what the state said, beta times it in d.
func (h *deltaHeads[F]) update(state, k, v, e, d []F, g, beta F) {
	clear(e)
	for i, x := range k {
		h.loops.Blend(e, 1, state[i*h.E:][:h.E], x)
	}
	for j, said := range e {
		e[j] = v[j] - g*said
	}
	h.loops.Scale(d, e, beta)
	for i, x := range k {
		h.loops.Blend(state[i*h.E:][:h.E], g, d, x)
	}
}

// read is o = Sᵀq.
func (h *deltaHeads[F]) read(o, state, q []F) {
	clear(o)
	for i, x := range q {
		h.loops.Blend(o, 1, state[i*h.E:][:h.E], x)
	}
}

// clearRest writes zeros where rows are in no sequence.
func (h *deltaHeads[F]) clearRest(m []F) {
	width, from, to := len(m)/max(h.rows, 1), 0, 0
	from, to = covered(h.cu, h.rows)
	clear(m[:from*width])
	clear(m[to*width:])
}

// forwardSlot returns a thread's memory in bytes: a state, a query and a key, e and d.
func (o GatedDelta) forwardSlot(qkv Type) int64 {
	E := o.valueSize(qkv)
	return int64(o.KeySize*E+2*o.KeySize+2*E) * int64(qkv.DType.Size())
}

// forward runs the tokens first..end of a key head, each value head from the state that start gives, and shows it the
// last.
func (h *deltaHeads[F]) forward(out, mem []F, first, end, key int, start, last func(value int, state []F)) {
	D, E := h.KeySize, h.E
	state, mem := mem[:D*E], mem[D*E:]
	q, mem := mem[:D], mem[D:]
	k, mem := mem[:D], mem[D:]
	e, d := mem[:E], mem[E:][:E]
	for value := key * h.group; value < (key+1)*h.group; value++ {
		start(value, state)
		for t := first; t < end; t++ {
			h.normed(q, h.q(h.qkv, t, key), h.queryScale())
			h.normed(k, h.k(h.qkv, t, key), 1)
			g, beta := h.gates(t, value)
			h.update(state, k, h.v(h.qkv, t, value), e, d, g, beta)
			h.read(h.o(out, t, value), state, q)
		}
		last(value, state)
	}
}

func gatedDelta[F Float](c *CPU, o GatedDelta, in, out []Tensor) func() {
	h, load := newDeltaHeads[F](o, in)
	y, slots := Floats[F](out[0]), newSlots[F](c.Scratch, c.Workers(), o.forwardSlot(in[0].Type))
	start, last := func(_ int, state []F) { clear(state) }, func(int, []F) {}
	task := func(i int) {
		slot, mem := slots.take()
		s, key := i/o.KeyHeads, i%o.KeyHeads
		h.forward(y, mem, int(h.cu[s]), min(int(h.cu[s+1]), h.rows), key, start, last)
		slots.give(slot)
	}
	pool, tasks := c.Pool, (len(h.cu)-1)*o.KeyHeads
	return after(load, func() {
		h.clearRest(y)
		pool.Parallel(tasks, task)
	})
}

// deltaStretch returns how many tokens lie between two states that are kept of n tokens: as many states are kept as are
// then recomputed.
func deltaStretch(n int) int { return max(1, int(math.Ceil(math.Sqrt(float64(n))))) }

// backwardSlot returns a thread's memory in bytes: the states kept, those of a stretch, the gradient of one, e of a
// stretch, and rows.
func (o GatedDelta) backwardSlot(qkv Type) int64 {
	E, n := o.valueSize(qkv), deltaStretch(qkv.Shape[0])
	return int64((2*n+2)*o.KeySize*E+(n+3)*E+3*o.KeySize) * int64(qkv.DType.Size())
}

// deltaGrad is the backward pass of a key head of a sequence.
type deltaGrad[F Float] struct {
	*deltaHeads[F]
	do, dqkv, db, da []F
	stretch          int
	slots            *slots[F]
}

// deltaMemory is a thread's.
type deltaMemory[F Float] struct {
	kept   []F // [stretch] states, the first of each stretch
	states []F // [stretch+1] states of the stretch that is gone through, the first is that before it
	grad   []F // of the state
	e      []F // [stretch,E]
	de, d  []F // [E]
	said   []F // [E]
	q, k   []F // [D]
	dk     []F // [D]
}

func (b *deltaGrad[F]) cut(mem []F) (m deltaMemory[F]) {
	cut := func(n int) (part []F) { part, mem = mem[:n], mem[n:]; return part }
	D, E, n := b.KeySize, b.E, b.stretch
	m.kept, m.states, m.grad = cut(n*D*E), cut((n+1)*D*E), cut(D*E)
	m.e, m.de, m.d, m.said = cut(n*E), cut(E), cut(E), cut(E)
	m.q, m.k, m.dk = cut(D), cut(D), cut(D)
	return m
}

func (b *deltaGrad[F]) task(i int) {
	slot, mem := b.slots.take()
	m, s, key := b.cut(mem), i/b.KeyHeads, i%b.KeyHeads
	first, end := int(b.cu[s]), min(int(b.cu[s+1]), b.rows)
	for t := first; t < end; t++ {
		clear(b.q(b.dqkv, t, key))
		clear(b.k(b.dqkv, t, key))
	}
	for value := key * b.group; value < (key+1)*b.group; value++ {
		b.head(&m, first, end, key, value)
	}
	for t := first; t < end; t++ {
		b.normGrad(m.q, b.q(b.dqkv, t, key), b.q(b.qkv, t, key), b.queryScale())
		b.normGrad(m.q, b.k(b.dqkv, t, key), b.k(b.qkv, t, key), 1)
	}
	b.slots.give(slot)
}

// head adds a value head's gradients to those of its key head, which are of normed queries and keys.
func (b *deltaGrad[F]) head(m *deltaMemory[F], first, end, key, value int) {
	size := b.KeySize * b.E
	state := m.states[:size]
	clear(state)
	for t := first; t < end; t++ {
		if at := t - first; at%b.stretch == 0 {
			copy(m.kept[at/b.stretch*size:], state)
		}
		b.normed(m.k, b.k(b.qkv, t, key), 1)
		g, beta := b.gates(t, value)
		b.update(state, m.k, b.v(b.qkv, t, value), m.e[:b.E], m.d, g, beta)
	}
	clear(m.grad)
	for n := (end - first - 1) / b.stretch; n >= 0 && first < end; n-- {
		from := first + n*b.stretch
		to := min(from+b.stretch, end)
		copy(m.states[:size], m.kept[n*size:])
		for t := from; t < to; t++ {
			at := t - from
			next := m.states[(at+1)*size:][:size]
			copy(next, m.states[at*size:])
			b.normed(m.k, b.k(b.qkv, t, key), 1)
			g, beta := b.gates(t, value)
			b.update(next, m.k, b.v(b.qkv, t, value), m.e[at*b.E:][:b.E], m.d, g, beta)
		}
		for t := to - 1; t >= from; t-- {
			at := t - from
			b.token(m, t, key, value, m.states[at*size:][:size], m.states[(at+1)*size:][:size], m.e[at*b.E:][:b.E])
		}
	}
}

// token goes one token back: from the gradient of the state behind it to that of the state before it.
func (b *deltaGrad[F]) token(m *deltaMemory[F], t, key, value int, before, behind, e []F) {
	E, loops := b.E, b.loops
	do, dq, dk := b.o(b.do, t, value), b.q(b.dqkv, t, key), b.k(b.dqkv, t, key)
	g, beta := b.gates(t, value)
	b.normed(m.q, b.q(b.qkv, t, key), b.queryScale())
	b.normed(m.k, b.k(b.qkv, t, key), 1)
	clear(m.said) // Gᵀk
	for i := range m.q {
		row := m.grad[i*E:][:E]
		loops.Blend(row, 1, do, m.q[i])
		dq[i] += loops.Dot(behind[i*E:][:E], do)
		loops.Blend(m.said, 1, row, m.k[i])
	}
	at := t*b.ValueHeads + value
	dbeta := float64(loops.Dot(m.said, e))
	loops.Scale(m.de, m.said, beta)
	copy(b.v(b.dqkv, t, value), m.de)
	loops.Scale(m.d, e, beta)
	var kept float64 // <G, S'>
	for i, x := range m.k {
		row, was := m.grad[i*E:][:E], before[i*E:][:E]
		dk[i] += loops.Dot(row, m.d) - g*loops.Dot(was, m.de)
		loops.Blend(row, 1, m.de, -x)
		kept += float64(loops.Dot(row, was))
		loops.Scale(row, row, g)
	}
	s := sigmoid(float64(b.b[at]))
	b.db[at] = F(dbeta * s * sigmoid(-float64(b.b[at])))
	// The decay is g = exp(-A softplus(x)): dx = dg * g * -A * sigmoid(x).
	x := float64(b.a[at]) + float64(b.dt[value])
	b.da[at] = F(kept * float64(g) * -math.Exp(float64(b.logA[value])) * sigmoid(x))
}

// normGrad turns the gradient of by*normed(x) into that of x.
func (b *deltaGrad[F]) normGrad(u, d, x []F, by float64) {
	r := b.normed(u, x, 1)
	along := by * float64(b.loops.Dot(u, d))
	b.loops.Blend(d, F(r*by), u, F(-r*along))
}

func gatedDeltaGrad[F Float](c *CPU, o GatedDelta, in, out []Tensor) func() {
	h, load := newDeltaHeads[F](o, in)
	b := &deltaGrad[F]{deltaHeads: h, do: Floats[F](in[6]), dqkv: Floats[F](out[0]), db: Floats[F](out[1]),
		da:      Floats[F](out[2]),
		stretch: deltaStretch(h.rows), slots: newSlots[F](c.Scratch, c.Workers(), o.backwardSlot(in[0].Type))}
	pool, tasks, task := c.Pool, (len(h.cu)-1)*o.KeyHeads, b.task
	return after(load, func() {
		h.clearRest(b.dqkv)
		h.clearRest(b.db)
		h.clearRest(b.da)
		pool.Parallel(tasks, task)
	})
}

// GatedDeltaCached is GatedDelta of the next tokens of several sequences, each with the state behind its earlier tokens
// in a slot.
//
//	the inputs of GatedDelta, cuK i32[S+1], state f[P,V*D*E] -> o f[M,V*E], state'
//
// Slots and sequences are as in CausalConvCached.
type GatedDeltaCached struct {
	Rule   GatedDelta
	Tokens int // of a slot's sequence at most
}

func (GatedDeltaCached) Name() string { return "gated_delta_cached" }

func (o GatedDeltaCached) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]", "f[M,V]", "f[M,V]", "w[V]", "w[V]", "i32[S]", "i32[S]", "f[P,L]")
	if err != nil {
		return nil, err
	}
	size, err := o.Rule.check(in, d, 0, 1, 2, 7)
	if err != nil {
		return nil, err
	}
	if want := o.Rule.ValueHeads * o.Rule.KeySize * size; d.At('L') != want {
		return nil, fmt.Errorf("input 7 is %v, want %d columns: %d matrices of %d rows and %d columns", in[7], want,
			o.Rule.ValueHeads, o.Rule.KeySize, size)
	}
	if o.Tokens < 1 {
		return nil, fmt.Errorf("attribute Tokens is %d, want at least 1", o.Tokens)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Rule.ValueHeads*size), in[7]}, nil
}

func (o GatedDeltaCached) Scratch(in []Type, workers int) int64 { return o.Rule.Scratch(in, workers) }

func (GatedDeltaCached) Overwrites() []Alias { return []Alias{{1, 7}} }

func (o GatedDeltaCached) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], gatedDeltaCached[float32], gatedDeltaCached[float64])(c, o, in, out)
}

func gatedDeltaCached[F Float](c *CPU, o GatedDeltaCached, in, out []Tensor) func() {
	h, load := newDeltaHeads[F](o.Rule, in)
	y, state, cuK, places, size := Floats[F](out[0]), Floats[F](out[1]), in[6].I32(), in[7].Shape[0], o.Rule.KeySize*h.E
	slots := newSlots[F](c.Scratch, c.Workers(), o.Rule.forwardSlot(in[0].Type))
	task := func(i int) {
		s, key := i/o.Rule.KeyHeads, i%o.Rule.KeyHeads
		first, end, place := int(h.cu[s]), min(int(h.cu[s+1]), h.rows), int(cuK[s])/o.Tokens
		if first >= end || place >= places {
			return
		}
		slot, mem := slots.take()
		of := func(value int) []F { return state[(place*o.Rule.ValueHeads+value)*size:][:size] }
		h.forward(y, mem, first, end, key, func(value int, s []F) {
			if clear(s); int(cuK[i/o.Rule.KeyHeads+1]-cuK[i/o.Rule.KeyHeads]) > end-first {
				copy(s, of(value))
			}
		}, func(value int, s []F) { copy(of(value), s) })
		slots.give(slot)
	}
	pool, tasks := c.Pool, (len(h.cu)-1)*o.Rule.KeyHeads
	return after(load, func() {
		h.clearRest(y)
		pool.Parallel(tasks, task)
	})
}

// Cost counts the rows alone, and one state.
func (o GatedDeltaCached) Cost(in, out []Type, _ Content) Cost {
	return Cost{moved(in[:7], out[:1]), o.Rule.flops(in[0], 4)}
}
