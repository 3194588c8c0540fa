package tower

import (
	"fmt"
	"math"

	"github.com/tierlora/tierlora/kernel/gemm"
	"github.com/tierlora/tierlora/model/weights"
)

// arithmetic computes layers of towers, forward alone, from tensors in float32.
type arithmetic struct {
	pool    *gemm.Pool
	tensors map[string][]float32
}

func newArithmetic() arithmetic { return arithmetic{gemm.Shared(), map[string][]float32{}} }

// read reads tensors as float32 and checks their shapes.
func (t *arithmetic) read(from Source, shapes map[string][]int) error {
	for name, shape := range shapes {
		tensor, ok := from.Tensor(name)
		if !ok {
			return fmt.Errorf("the checkpoint has no tensor %s", name)
		}
		if fmt.Sprint(tensor.Shape) != fmt.Sprint(shape) {
			return fmt.Errorf("tensor %s has the shape %v, config.json says %v", name, tensor.Shape, shape)
		}
		t.tensors[name] = make([]float32, tensor.Len())
		if err := weights.Float32s(tensor, t.tensors[name]); err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
	}
	return nil
}

// rows calls f for the numbers below n, in parallel.
func (t *arithmetic) rows(n int, f func(i int)) {
	t.pool.Parallel(n, f)
}

// linear returns x [n, in] times the transposed weight, plus the bias.
func (t *arithmetic) linear(name string, x []float32, n, in, out int) []float32 {
	y, bias := make([]float32, n*out), t.tensors[name+".bias"]
	for i := range n {
		copy(y[i*out:], bias)
	}
	gemm.Gemm(t.pool, false, true, n, out, in, 1, x, in, t.tensors[name+".weight"], in, 1, y, out)
	return y
}

// attention returns softmax(q kᵀ / sqrt(D)) v of every head: each patch sees all.
//
// The n rows of q, k and v are apart elements apart and hold width numbers. Scores of some queries exist at a time.
func (t *arithmetic) attention(q, k, v []float32, n, apart, width, heads int) []float32 {
	size, some := width/heads, min(n, max(1, maxScores/n))
	out, scores := make([]float32, n*width), make([]float32, some*n)
	scale := float32(1 / math.Sqrt(float64(size)))
	for h := range heads {
		at := h * size
		for first := 0; first < n; first += some {
			rows := min(some, n-first)
			gemm.Gemm(t.pool, false, true, rows, n, size, scale, q[first*apart+at:], apart, k[at:], apart, 0, scores, n)
			t.rows(rows, func(i int) { softmax(scores[i*n:][:n]) })
			gemm.Gemm(t.pool, false, false, rows, size, n, 1, scores, n, v[at:], apart, 0, out[first*width+at:], width)
		}
	}
	return out
}

// maxScores is the most scores of attention that exist at a time.
const maxScores = 1 << 22

// norm returns the layer norm of every row of width numbers: (x - mean) / sqrt(variance + eps), times a weight, plus a
// bias.
func (t *arithmetic) norm(name string, x []float32, width int, eps float64) []float32 {
	y, w, b := make([]float32, len(x)), t.tensors[name+".weight"], t.tensors[name+".bias"]
	t.rows(len(x)/width, func(i int) {
		row, to := x[i*width:][:width], y[i*width:]
		var sum, squares float64
		for _, v := range row {
			sum += float64(v)
		}
		mean := sum / float64(width)
		for _, v := range row {
			squares += (float64(v) - mean) * (float64(v) - mean)
		}
		by := 1 / math.Sqrt(squares/float64(width)+eps)
		for j, v := range row {
			to[j] = float32((float64(v)-mean)*by)*w[j] + b[j]
		}
	})
	return y
}

// rmsNorm returns normed rows: x / sqrt(mean(x²) + eps), times a weight that is stored less than it by offset.
func (t *arithmetic) rmsNorm(x, w []float32, eps float64, offset float32) []float32 {
	width, y := len(w), make([]float32, len(x))
	t.rows(len(x)/width, func(i int) {
		row, squares := x[i*width:][:width], 0.
		for _, v := range row {
			squares += float64(v) * float64(v)
		}
		by := 1 / math.Sqrt(squares/float64(width)+eps)
		for j, v := range row {
			y[i*width+j] = float32(float64(v)*by) * (offset + w[j])
		}
	})
	return y
}

func add(to, from []float32) {
	for i := range to {
		to[i] += from[i]
	}
}

// gelu is GELU by its approximation with tanh, in place.
func gelu(x []float32) {
	for i, v := range x {
		f := float64(v)
		x[i] = float32(0.5 * f * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(f+0.044715*f*f*f))))
	}
}

// geluErf is GELU, in place.
func geluErf(x []float32) {
	for i, v := range x {
		f := float64(v)
		x[i] = float32(0.5 * f * (1 + math.Erf(f/math.Sqrt2)))
	}
}

// silu is x times its sigmoid, in place.
func silu(x []float32) {
	for i, v := range x {
		x[i] = float32(float64(v) / (1 + math.Exp(-float64(v))))
	}
}

// softmax turns scores into probabilities in place.
func softmax(x []float32) {
	top, sum := float32(math.Inf(-1)), 0.0
	for _, v := range x {
		top = max(top, v)
	}
	for i, v := range x {
		e := math.Exp(float64(v - top))
		x[i] = float32(e)
		sum += e
	}
	for i := range x {
		x[i] *= float32(1 / sum)
	}
}
