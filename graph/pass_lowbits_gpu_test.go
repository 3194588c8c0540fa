package graph

import (
	"fmt"
	"maps"
	"testing"

	"github.com/tierlora/tierlora/kernel"
)

// residual returns two layers, each x + norm(x) A, and the loss of their sum's norm.
func residual(b *Builder, grad bool) []*Value {
	const M, C, V = 256, 256, 32
	ids, labels := b.Batch("ids", kernel.T(kernel.I32, M)), b.Batch("labels", kernel.T(kernel.I32, M))
	x := b.Apply(kernel.Embedding{Float: kernel.F32}, ids, b.Frozen("table", floats(V, C)))
	var params []*Value
	for i := range 2 {
		b.In(fmt.Sprintf("layers.%d", i), func() {
			h := b.Apply(kernel.RMSNorm{Eps: 1e-5}, x, b.Frozen(fmt.Sprintf("norm %d", i), floats(C)))
			params = append(params, b.Param("a", fmt.Sprintf("A %d", i), floats(C, C)))
			r := b.Apply(kernel.MatMul{}, h, params[i])
			if i == 1 { // as LoRA's update is added to a layer's result
				r = b.Apply(kernel.Add{}, b.Apply(kernel.MatMul{}, h, b.Frozen("W", floats(C, C))), r)
			}
			x = b.Apply(kernel.Add{}, x, r)
		})
	}
	x = b.Apply(kernel.RMSNorm{Eps: 1e-5}, x, b.Frozen("norm", floats(C)))
	loss := b.ApplyAll(kernel.LinearCrossEntropy{Chunk: 64, Grad: grad}, x, b.Frozen("head", floats(V, C)), labels,
		b.Batch("scale", floats(1)))[0]
	if !grad {
		return []*Value{loss}
	}
	return append(b.Grad(loss, params...), loss)
}

// TestResidualSumsKeepTheirLowBits: every sum of the stream and every norm of one reads and writes the low bits, in a
// plan of each kind, but for fp32; the backward pass reads the stored values alone. GEMMs that are added to it are
// fp32.
func TestResidualSumsKeepTheirLowBits(t *testing.T) {
	const plain, bare, carried = "rmsnorm of a sum without low bits", "rmsnorm of a sum",
		"rmsnorm of a sum with low bits"
	for _, c := range []struct {
		grad      bool
		mode      Recompute
		precision kernel.Precision
		want      map[string]int
	}{
		{false, KeepAll, kernel.PrecisionBF16, map[string]int{"rmsnorm": 1, bare: 1, carried: 1}},
		{true, KeepAll, kernel.PrecisionBF16, map[string]int{"rmsnorm": 1, bare: 1, carried: 1}},
		{true, KeepAll, kernel.PrecisionFP16, map[string]int{"rmsnorm": 1, bare: 1, carried: 1}},
		{true, KeepAll, kernel.PrecisionFP32, map[string]int{"rmsnorm": 1, plain: 2}},
		{true, RecomputeCheap, kernel.PrecisionBF16, map[string]int{"rmsnorm": 2, bare: 1, carried: 1,
			"rmsnorm with low bits": 1}},
		{true, RecomputeLayers, kernel.PrecisionBF16, map[string]int{"rmsnorm": 2, bare: 1, carried: 1,
			"rmsnorm with low bits": 1}},
		{true, Offload, kernel.PrecisionBF16, map[string]int{"rmsnorm": 2, "add": 1, carried: 1,
			"rmsnorm with low bits": 2, "offload": 3, "prefetch": 3}},
	} {
		b := NewBuilder(kernel.F32)
		outputs := residual(b, c.grad)
		b.Recompute(c.mode, 0, KeepAll)
		p, err := b.compile(newDeviceTarget(90, c.precision), true, outputs)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, call := range p.calls {
			switch k := call.kernel.(type) {
			case kernel.RMSNorm:
				got["rmsnorm"]++
			case kernel.RMSNormLowBits:
				got["rmsnorm with low bits"]++
			case kernel.AddLowBits:
				got["add"]++
			case kernel.AddRMSNorm:
				switch {
				case k.Carried:
					got[carried]++
				case k.LowBits:
					got[bare]++
				default:
					got[plain]++
				}
			case offloadTo, prefetchFrom:
				got[k.Name()]++
			case kernel.Add:
				if !call.backward && c.precision != kernel.PrecisionFP32 {
					t.Errorf("grad %v, %v: %v rounds the stream", c.grad, c.mode, call)
				}
			}
			switch call.kernel.(type) {
			case kernel.AddLowBits, kernel.AddRMSNorm:
				if r := call.in[1]; p.stored(r).DType != kernel.F32 {
					t.Errorf("grad %v, %v: %v is stored as %v", c.grad, c.mode, r.call, p.stored(r))
				}
			}
			for _, v := range call.in {
				if c.mode == KeepAll && call.backward && p.stored(v).DType == kernel.U8 {
					t.Errorf("%v: %v reads %s: it has to be kept", c.mode, call, v.Name)
				}
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("grad %v, %v, %v: %v, want %v\n%v", c.grad, c.mode, c.precision, got, c.want, p)
		}
	}
}
