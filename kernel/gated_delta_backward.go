package kernel

import "math"

// deltaStretch is how many tokens lie between two states that are kept of n tokens: as many states are kept as are then recomputed.
func deltaStretch(n int) int { return max(1, int(math.Ceil(math.Sqrt(float64(n))))) }

// backwardSlot is a thread's memory in bytes: the states kept, those of a stretch, the gradient of one, e of a stretch, and rows.
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
	b := &deltaGrad[F]{deltaHeads: h, do: Floats[F](in[6]), dqkv: Floats[F](out[0]), db: Floats[F](out[1]), da: Floats[F](out[2]),
		stretch: deltaStretch(h.rows), slots: newSlots[F](c.Scratch, c.Workers(), o.backwardSlot(in[0].Type))}
	pool, tasks, task := c.Pool, (len(h.cu)-1)*o.KeyHeads, b.task
	return after(load, func() {
		h.clearRest(b.dqkv)
		h.clearRest(b.db)
		h.clearRest(b.da)
		pool.Parallel(tasks, task)
	})
}
