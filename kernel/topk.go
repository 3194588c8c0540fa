package kernel

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/simd"
)

// LinearTopK computes the vocabulary head and the most likely tokens of each row with their log-probabilities, a chunk
// of rows at a time, so that the logits [M,V] never exist.
//
//	x f[M,C], w w[V,C], labels i32[M] -> ids i32[M,K], logps f[M,K+1]
//	logps[k] = log softmax(x wᵀ / Temperature)[ids[k]];  logps[K] = log(1 - sum of the exponentials of the others)
//
// The tokens of a row descend by log-probability; of equals the first in the vocabulary comes first. Rows labelled -100
// have ids -1 and logps 0. With Cap > 0 the logits are Cap * tanh(x wᵀ / Cap) in place of x wᵀ. A row with a logit that
// is NaN or infinite has logps that are NaN.
type LinearTopK struct {
	Chunk       int     // rows whose logits exist at the same time: Chunk*V numbers of scratch
	K           int     // 1 to MaxSupport, and below V
	Cap         float64 // soft cap of the logits; 0 = none
	Temperature float64 // above 0
}

// Name returns "topk".
func (LinearTopK) Name() string { return "topk" }

// Shape returns the types of the tokens and of their log-probabilities.
func (o LinearTopK) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "w[V,C]", "i32[M]")
	if err != nil {
		return nil, err
	}
	if err := checkHead(o.Chunk, o.Cap); err != nil {
		return nil, err
	}
	if in[0].Shape[1] == 0 {
		return nil, fmt.Errorf("input 0 is %v: rows have no numbers", in[0])
	}
	if o.K < 1 || o.K > MaxSupport || o.K >= d.At('V') {
		return nil, fmt.Errorf("attribute K is %d, want 1 to %d and below the vocabulary's %d", o.K, MaxSupport,
			d.At('V'))
	}
	if !(o.Temperature > 0) || math.IsInf(o.Temperature, 1) {
		return nil, fmt.Errorf("attribute Temperature is %v, want a number above 0", o.Temperature)
	}
	return []Type{T(I32, in[0].Shape[0], o.K), T(in[0].DType, in[0].Shape[0], o.K+1)}, nil
}

// Scratch returns the bytes of headChunks and of a part of each row's exponentials.
func (o LinearTopK) Scratch(in []Type, _ int) int64 {
	rows := int64(headRows(o.Chunk, in[0]))
	return headScratch(o.Chunk, in[0], in[1]) + AlignUp(rows*divergencePart*int64(in[0].DType.Size()))
}

// CPU binds the float64 or the float32 body.
func (o LinearTopK) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], bindTopK[float32], bindTopK[float64])(c, o, in, out)
}

// linearTopK is a bound LinearTopK.
type linearTopK[F Float] struct {
	*headChunks[F]
	LinearTopK
	loops *simd.Loops[F]
	ids   []int32 // [M,K]
	logps []F     // [M,K+1]
	parts []F     // [chunk,divergencePart]
}

func bindTopK[F Float](c *CPU, o LinearTopK, in, out []Tensor) func() {
	e := &linearTopK[F]{headChunks: newHeadChunks[F](c, o.Chunk, in[0], in[1], in[2]), LinearTopK: o,
		loops: simd.Best[F](), ids: out[0].I32(), logps: Floats[F](out[1])}
	e.parts = e.take(e.chunk * divergencePart)
	return e.walk(e.untrained, e.row)
}

// untrained writes the results of row t, which has no label.
func (e *linearTopK[F]) untrained(t int) {
	for k := range e.K {
		e.ids[t*e.K+k] = -1
	}
	clear(e.logps[t*(e.K+1):][:e.K+1])
}

// row finds the most likely tokens of the chunk's row i.
func (e *linearTopK[F]) row(i int) {
	t, _, z := e.at(i)
	if e.Cap > 0 {
		e.loops.SoftCap(z, z, F(e.Cap))
	}
	if e.Temperature != 1 {
		e.loops.Scale(z, z, F(1/e.Temperature))
	}
	ids, logps := e.ids[t*e.K:][:e.K], e.logps[t*(e.K+1):][:e.K+1]
	found := 0
	for v, x := range z {
		if found == e.K && !(x > logps[found-1]) {
			continue
		}
		if found < e.K {
			found++
		}
		k := found - 1
		for ; k > 0 && x > logps[k-1]; k-- {
			logps[k], ids[k] = logps[k-1], ids[k-1]
		}
		logps[k], ids[k] = x, int32(v)
	}
	const never = 1e4 // exp(-1e4) is zero
	top, inside, outside := logps[0], 0., 0.
	for k, id := range ids {
		inside += math.Exp(float64(logps[k] - top))
		z[id] = top - never
	}
	for at := 0; at < len(z); at += divergencePart {
		p := z[at:min(at+divergencePart, len(z))]
		outside += float64(e.loops.Exp(e.parts[i*divergencePart:][:len(p)], p, top))
	}
	lse := math.Log(inside+outside) + float64(top)
	for k := range ids {
		logps[k] = F(float64(logps[k]) - lse)
	}
	logps[e.K] = F(math.Log(outside) + float64(top) - lse)
}

// Cost counts the labelled rows alone: their GEMM, and a function and a comparison for each logit.
func (LinearTopK) Cost(in, out []Type, c Content) Cost { return headCost(in, out, 1, 3, c) }

// Stored keeps hidden states and the vocabulary matrix in the compute type and log-probabilities in fp32.
func (LinearTopK) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType, I32}, []DType{I32, F32}
}

// ScratchGPU returns the bytes of a chunk's logits and the GEMM's scratch.
func (o LinearTopK) ScratchGPU(in, _ []Type, sm int) int64 {
	return headScratchGPU(o.Chunk, in[0], in[1], sm, 1)
}
