package kernel

import (
	"fmt"
)

// HeadShares is how ranks that have a share of a sequence's tokens each divide attention's heads among themselves.
//
// Rank r of Ranks takes Heads/Ranks query heads, from r Heads/Ranks on, and the key heads that those read:
// KVHeads/Ranks of its own, or where there are fewer of them than ranks the one that it reads with its neighbours.
// KVHeads is 0 of rows that hold no keys and values.
type HeadShares struct {
	Ranks, Heads, KVHeads int
	Fused                 bool // queries, keys and values lie side by side in one matrix
}

// Check says why heads cannot be divided.
func (o HeadShares) Check() error {
	switch {
	case o.Ranks < 1 || o.Heads < 1 || o.KVHeads < 0 || o.KVHeads > 0 && o.Heads%o.KVHeads != 0:
		return fmt.Errorf("%d heads over %d key heads for %d ranks", o.Heads, o.KVHeads, o.Ranks)
	case o.Heads%o.Ranks != 0:
		return fmt.Errorf("%d heads are no whole number for each of %d ranks", o.Heads, o.Ranks)
	case o.KVHeads > 0 && o.KVHeads%o.Ranks != 0 && o.Ranks%o.KVHeads != 0:
		return fmt.Errorf("%d key heads and %d ranks: neither is a multiple of the other", o.KVHeads, o.Ranks)
	}
	return nil
}

// Own returns the query heads and the key heads of a rank.
func (o HeadShares) Own() (heads, kvHeads int) {
	if o.KVHeads > 0 {
		kvHeads = max(1, o.KVHeads/o.Ranks)
	}
	return o.Heads / o.Ranks, kvHeads
}

// headPart is heads that lie side by side, where they belong and where ranks have them.
type headPart struct {
	input int // of SplitHeads, output of JoinHeads
	at    int // the first of them in a row there
	heads int // of all ranks
	own   int // of each rank
	first int // in a rank's row
}

// firstOf returns the first head of a part that a rank has.
func (p headPart) firstOf(rank, ranks int) int { return rank * p.heads / ranks }

// shared returns how many ranks have one head.
func (p headPart) shared(ranks int) int { return max(1, ranks/p.heads) }

func (o HeadShares) parts() []headPart {
	q, kv := o.Own()
	all := []headPart{{0, 0, o.Heads, q, 0}}
	if o.KVHeads > 0 {
		all = append(all, headPart{1, 0, o.KVHeads, kv, q}, headPart{2, 0, o.KVHeads, kv, q + kv})
	}
	if o.Fused {
		for i := range all {
			all[i].input, all[i].at = 0, []int{0, o.Heads, o.Heads + o.KVHeads}[i]
		}
	}
	return all
}

// widths returns the heads in a row of each matrix apart, and in a rank's row.
func (o HeadShares) widths() (apart []int, together int) {
	for _, p := range o.parts() {
		if p.input == len(apart) {
			apart = append(apart, 0)
		}
		apart[p.input] += p.heads
		together += p.own
	}
	return apart, together
}

// SplitHeads lays out the rows of this rank's tokens for AllToAll: block r has rank r's heads of all of them.
//
//	q f[M,H*D], and with KVHeads k f[M,K*D], v f[M,K*D], or Fused one matrix of all three -> y f[R*M,W]
//	y[r*M+i] = rank r's heads of q[i], then of k[i], then of v[i];  W = (H/R + 2 max(1, K/R)) D, R = Ranks
//
// Behind AllToAll, y has all tokens of this rank's heads in the order of the sequence, as AttentionQKV reads them.
type SplitHeads HeadShares

func (SplitHeads) Name() string { return "heads_split" }

func (o SplitHeads) Shape(in []Type) ([]Type, error) {
	s := HeadShares(o)
	if err := s.Check(); err != nil {
		return nil, err
	}
	apart, together := s.widths()
	if len(in) != len(apart) {
		return nil, fmt.Errorf("takes %d inputs, got %d", len(apart), len(in))
	}
	var rows, head int
	for i, heads := range apart {
		d, err := Want(in[i:i+1], "f[M,C]")
		if err != nil {
			return nil, fmt.Errorf("input %d: %w", i, err)
		}
		if i == 0 {
			rows, head = d.At('M'), d.At('C')/heads
		}
		if head == 0 || in[i].DType != in[0].DType || d.At('M') != rows || d.At('C') != heads*head {
			return nil, fmt.Errorf("input %d is %v, want %d heads of one size in the rows of %v", i, in[i], heads,
				in[0])
		}
	}
	return []Type{T(in[0].DType, s.Ranks*rows, together*head)}, nil
}

func (o SplitHeads) Grads() Backward {
	apart, _ := HeadShares(o).widths()
	b := Backward{Calls: []Call{{JoinHeads(o), []Ref{Upstream()}}}}
	for i := range apart {
		b.Grads = append(b.Grads, FromCall(0, i))
	}
	return b
}

func (o SplitHeads) CPU(c *CPU, in, out []Tensor) func() {
	s := HeadShares(o)
	_, together := s.widths()
	rows := in[0].Shape[0]
	row := out[0].Shape[1] * out[0].DType.Size() // bytes, of a rank
	head := row / together
	y, parts := out[0].Bytes(), s.parts()
	return c.Range(rows, rowGrain(in[0].Shape[1]), func(lo, hi int) {
		for _, p := range parts {
			x := in[p.input].Bytes()
			width := len(x) / rows
			for r := range s.Ranks {
				from := (p.at + p.firstOf(r, s.Ranks)) * head
				for i := lo; i < hi; i++ {
					copy(y[(r*rows+i)*row+p.first*head:][:p.own*head], x[i*width+from:])
				}
			}
		}
	})
}

func (SplitHeads) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

// JoinHeads brings the heads of this rank's tokens together that AllToAll has brought back: what SplitHeads lays out,
// and its gradient. A head that several ranks have is the sum of theirs, in the order of the ranks.
//
//	x f[R*M,W] -> q f[M,H*D], and with KVHeads k f[M,K*D], v f[M,K*D], or Fused one matrix of all three
type JoinHeads HeadShares

func (JoinHeads) Name() string { return "heads_join" }

func (o JoinHeads) Shape(in []Type) ([]Type, error) {
	s := HeadShares(o)
	if err := s.Check(); err != nil {
		return nil, err
	}
	d, err := Want(in, "f[M,W]")
	if err != nil {
		return nil, err
	}
	apart, together := s.widths()
	if d.At('W') == 0 || d.At('W')%together != 0 || d.At('M')%s.Ranks != 0 {
		return nil, fmt.Errorf("input 0 is %v, want the rows of %d ranks with %d heads in each", in[0], s.Ranks,
			together)
	}
	var out []Type
	for _, heads := range apart {
		out = append(out, T(in[0].DType, d.At('M')/s.Ranks, heads*d.At('W')/together))
	}
	return out, nil
}

// Grads returns those of queries alone: graphs differentiate the first output.
func (o JoinHeads) Grads() Backward {
	if o.KVHeads > 0 && !o.Fused {
		return Backward{Grads: make([]Ref, 1)}
	}
	return Backward{Calls: []Call{{SplitHeads(o), []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (o JoinHeads) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], joinHeads[float32], joinHeads[float64])(HeadShares(o), c, in, out)
}

func joinHeads[F Float](s HeadShares, c *CPU, in, out []Tensor) func() {
	_, together := s.widths()
	x, row, rows := Floats[F](in[0]), in[0].Shape[1], out[0].Shape[0]
	head := row / together
	ys := make([][]F, len(out))
	for i, t := range out {
		ys[i] = Floats[F](t)
	}
	parts := s.parts()
	return c.Range(rows, rowGrain(out[0].Shape[1]), func(lo, hi int) {
		for _, p := range parts {
			y, shared := ys[p.input], p.shared(s.Ranks)
			width := len(y) / rows
			for r := range s.Ranks {
				to := (p.at + p.firstOf(r, s.Ranks)) * head
				for i := lo; i < hi; i++ {
					from, to := x[(r*rows+i)*row+p.first*head:][:p.own*head], y[i*width+to:][:p.own*head]
					if r%shared == 0 {
						copy(to, from)
						continue
					}
					for j, v := range from {
						to[j] += v
					}
				}
			}
		}
	})
}

func (JoinHeads) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

func (o SplitHeads) Stored([]DType) (want, out []DType) {
	for range o.inputs() {
		want = append(want, ComputeType)
	}
	return want, []DType{ComputeType}
}

func (o SplitHeads) inputs() []int {
	apart, _ := HeadShares(o).widths()
	return apart
}

func (o JoinHeads) Stored([]DType) (want, out []DType) {
	for range SplitHeads(o).inputs() {
		out = append(out, ComputeType)
	}
	return []DType{ComputeType}, out
}

// HeadColumns copies the same columns of every head, such as the queries of a projection that has a gate beside each
// head's query.
//
//	x f[M,H*Of] -> y f[M,H*Width], of each head's Of columns From..From+Width
type HeadColumns struct{ Heads, Of, From, Width int }

func (HeadColumns) Name() string { return "head_columns" }

func (o HeadColumns) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if d.At('C') != o.Heads*o.Of {
		return nil, fmt.Errorf("input 0 is %v, want %d columns, %d for each head", in[0], o.Heads*o.Of, o.Of)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Heads*o.Width)}, nil
}

func (o HeadColumns) check() error {
	if o.Heads < 1 || o.From < 0 || o.Width < 1 || o.From+o.Width > o.Of {
		return fmt.Errorf("columns %d to %d of %d in each of %d heads", o.From, o.From+o.Width-1, o.Of, o.Heads)
	}
	return nil
}

func (o HeadColumns) Grads() Backward {
	return Backward{Calls: []Call{{HeadColumnsGrad(o), []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (o HeadColumns) CPU(c *CPU, in, out []Tensor) func() {
	size := in[0].DType.Size()
	x, y, head, from, width := in[0].Bytes(), out[0].Bytes(), o.Of*size, o.From*size, o.Width*size
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(o.Width), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			copy(y[i*width:][:width], x[i*head+from:])
		}
	})
}

func (HeadColumns) Cost(_, out []Type, _ Content) Cost { return Cost{Bytes: 2 * moved(out)} }

// HeadColumnsGrad is the gradient of HeadColumns: dy where the columns were, zeros beside them. As an operation of a
// network it widens heads by columns of zeros.
//
//	dy f[M,H*Width] -> dx f[M,H*Of]
type HeadColumnsGrad HeadColumns

func (HeadColumnsGrad) Name() string { return "head_columns_grad" }

func (o HeadColumnsGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,W]")
	if err != nil {
		return nil, err
	}
	if err := HeadColumns(o).check(); err != nil {
		return nil, err
	}
	if d.At('W') != o.Heads*o.Width {
		return nil, fmt.Errorf("input 0 is %v, want %d columns, %d for each head", in[0], o.Heads*o.Width, o.Width)
	}
	return []Type{T(in[0].DType, d.At('M'), o.Heads*o.Of)}, nil
}

func (o HeadColumnsGrad) Grads() Backward {
	return Backward{Calls: []Call{{HeadColumns(o), []Ref{Upstream()}}}, Grads: []Ref{FromCall(0, 0)}}
}

func (o HeadColumnsGrad) CPU(c *CPU, in, out []Tensor) func() {
	size := in[0].DType.Size()
	dy, dx, head, from, width := in[0].Bytes(), out[0].Bytes(), o.Of*size, o.From*size, o.Width*size
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(o.Of), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			clear(dx[i*head:][:head])
			copy(dx[i*head+from:][:width], dy[i*width:])
		}
	})
}

func (HeadColumnsGrad) Cost(in, out []Type, _ Content) Cost { return Cost{Bytes: moved(in, out)} }

func (HeadColumns) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

func (HeadColumnsGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType}, []DType{ComputeType}
}

// HeadGate multiplies what every head gives by gates that lie beside its queries, as the attention of Qwen3-Next and
// Qwen3.5 has it.
//
//	x f[M,H*D], both f[M,H*2D] -> y f[M,H*D] = x*sigmoid(gate), each head's gate the second half of its columns in both
type HeadGate struct{ Heads int }

// Cheap: its output costs less to recompute than to keep.
func (HeadGate) Cheap() {}

func (HeadGate) Name() string { return "head_gate" }

func (o HeadGate) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[M,B]")
	if err != nil {
		return nil, err
	}
	return []Type{in[0]}, o.check(in, d, 0, 1)
}

func (o HeadGate) check(in []Type, d Dims, floats ...int) error {
	if err := sameElements(in, floats...); err != nil {
		return err
	}
	if o.Heads < 1 || d.At('C')%o.Heads != 0 || d.At('B') != 2*d.At('C') {
		return fmt.Errorf("input 0 is %v and input 1 is %v, want %d heads, of which input 1 has twice the columns",
			in[0], in[1], o.Heads)
	}
	return nil
}

func (o HeadGate) Grads() Backward {
	return Backward{
		Calls: []Call{{HeadGateGrad(o), []Ref{In(0), In(1), Upstream()}}},
		Grads: []Ref{FromCall(0, 0), FromCall(0, 1)},
	}
}

func (HeadGate) InPlace() []Alias { return []Alias{{0, 0}} }

func (o HeadGate) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], headGate[float32], headGate[float64])(c, o, in, out)
}

func headGate[F Float](c *CPU, o HeadGate, in, out []Tensor) func() {
	x, both, y, head := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), in[0].Shape[1]/o.Heads
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(head), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			gate, x, y := both[(2*i+1)*head:][:head], x[i*head:][:head], y[i*head:][:head]
			for j, v := range x {
				y[j] = v * F(sigmoid(float64(gate[j])))
			}
		}
	})
}

// HeadGateGrad are the gradients of HeadGate, with s = sigmoid(gate).
//
//	x f[M,H*D], both f[M,H*2D], dy f[M,H*D] -> dx f[M,H*D] = dy*s, dboth f[M,H*2D] = x*dy*s*(1-s) in the gates, zeros in the rest
type HeadGateGrad HeadGate

func (HeadGateGrad) Name() string { return "head_gate_grad" }

func (o HeadGateGrad) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[M,B]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	return []Type{in[0], in[1]}, HeadGate(o).check(in, d, 0, 1, 2)
}

func (o HeadGateGrad) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], headGateGrad[float32], headGateGrad[float64])(c, o, in, out)
}

func headGateGrad[F Float](c *CPU, o HeadGateGrad, in, out []Tensor) func() {
	x, both, dy, head := Floats[F](in[0]), Floats[F](in[1]), Floats[F](in[2]), in[0].Shape[1]/o.Heads
	dx, dboth := Floats[F](out[0]), Floats[F](out[1])
	return c.Range(in[0].Shape[0]*o.Heads, rowGrain(head), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			gate, x, dy := both[(2*i+1)*head:][:head], x[i*head:][:head], dy[i*head:][:head]
			dx, rest := dx[i*head:][:head], dboth[2*i*head:][:2*head]
			clear(rest[:head])
			for j, v := range x {
				s, d := sigmoid(float64(gate[j])), float64(dy[j])
				rest[head+j] = F(float64(v) * d * s * sigmoid(-float64(gate[j])))
				dx[j] = F(d * s)
			}
		}
	})
}

func (HeadGate) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, out[0], 3) }

func (HeadGateGrad) Cost(in, out []Type, _ Content) Cost { return pointwise(in, out, in[0], 6) }

func (HeadGate) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

func (HeadGateGrad) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, ComputeType}, []DType{ComputeType, ComputeType}
}
