package kernel

import (
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// deltaHeads is what the bodies of the gated delta rule share. A task is a key head of a sequence, with its value heads in turn.
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
	h := &deltaHeads[F]{GatedDelta: o, loops: simd.Best[F](), E: o.valueSize(in[0].Type), width: in[0].Shape[1], group: o.ValueHeads / o.KeyHeads,
		rows: in[0].Shape[0], cu: in[5].I32(), qkv: Floats[F](in[0]), b: Floats[F](in[1]), a: Floats[F](in[2])}
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

// o is a value head of a row of the output, or of its gradient.
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

// gates are those of a value head at a token: how much of the state stays, and how much of its error is corrected.
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

// forwardSlot is a thread's memory in bytes: a state, a query and a key, e and d.
func (o GatedDelta) forwardSlot(qkv Type) int64 {
	E := o.valueSize(qkv)
	return int64(o.KeySize*E+2*o.KeySize+2*E) * int64(qkv.DType.Size())
}

// forward runs the tokens first..end of a key head, each value head from the state that start gives, and shows it the last.
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
