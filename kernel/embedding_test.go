package kernel_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestEmbedding(t *testing.T) {
	at := func(d kernel.DType) kernel.Kernel { return kernel.Embedding{Float: d} }
	ids := kerneltest.Ints([]int32{3, 0, 10, 3, 7}, 5)
	for _, d := range []kernel.DType{kernel.F32, kernel.F64, kernel.BF16, kernel.F16} {
		kerneltest.Run(t, kerneltest.Case{Name: d.String(), At: at,
			In: []kerneltest.Input{ids, kerneltest.Normal(11, 9).As(d)}})
	}
	many := make([]int32, 300)
	for i := range many {
		many[i] = int32(i * 31 % 50)
	}
	scaled := func(d kernel.DType) kernel.Kernel { return kernel.Embedding{Float: d, Scale: math.Sqrt(130)} }
	kerneltest.Run(t, kerneltest.Case{Name: "scaled", At: scaled,
		In: []kerneltest.Input{kerneltest.Ints(many, 300), kerneltest.Normal(50, 130)}, Bound: 2e-7})
	kerneltest.Run(t, kerneltest.Case{Name: "pieces", At: at,
		In: []kerneltest.Input{kerneltest.Ints(many, 300), kerneltest.Normal(50, 130)}})
}

func TestEmbeddingGrad(t *testing.T) {
	many := make([]int32, 300)
	for i := range many {
		many[i] = int32(i * 31 % 50)
	}
	for _, k := range []kernel.EmbeddingGrad{{}, {Scale: 1.7}} {
		in := []kerneltest.Input{kerneltest.Ints(many, 300), kerneltest.Normal(53, 130), kerneltest.Normal(300, 130)}
		small := []kerneltest.Input{kerneltest.Ints([]int32{3, 0, 10, 3, -1, 11}, 6), kerneltest.Normal(11, 9),
			kerneltest.Normal(6, 9)}
		kerneltest.Run(t,
			kerneltest.Case{Name: fmt.Sprint("pieces ", k.Scale), Kernel: k, In: in, Bound: 4e-7},
			kerneltest.Case{Name: fmt.Sprint("ids outside ", k.Scale), Kernel: k, In: small, Bound: 2e-7},
			kerneltest.Case{Name: fmt.Sprint("onto ", k.Scale), Kernel: kernel.Onto[kernel.EmbeddingGrad]{Of: k},
				In: append(in[:3:3], kerneltest.Normal(53, 130)), Bound: 4e-7},
		)
	}
}

// TestEmbeddingGradMeaning: rows of one id add up, the others are zero, or keep what is added to.
func TestEmbeddingGradMeaning(t *testing.T) {
	ids, table := i32s([]int32{2, 0, 2, 7, -1}), zeros(kernel.F64, 4, 2)
	dy := f64s([]float64{1, 2, 10, 20, 100, 200, 5, 5, 6, 6}, 5, 2)
	near(t, "gradient", evaluate(t, kernel.EmbeddingGrad{}, ids, table, dy)[0].F64(),
		[]float64{10, 20, 0, 0, 101, 202, 0, 0}, 0)
	onto := f64s([]float64{1, 1, 2, 2, 3, 3, 4, 4}, 4, 2)
	near(t, "sum", evaluate(t, kernel.Onto[kernel.EmbeddingGrad]{Of: kernel.EmbeddingGrad{Scale: 2}}, ids, table, dy,
		onto)[0].F64(), []float64{21, 41, 2, 2, 205, 407, 4, 4}, 0)
}

// Every f16 and bf16 number is taken as it is, ids outside the table give NaN.
func TestEmbeddingMeaning(t *testing.T) {
	table := zeros(kernel.F16, 1<<10, 64)
	for i := range table.U16() {
		table.U16()[i] = uint16(i)
	}
	ids := make([]int32, 1<<10)
	for i := range ids {
		ids[i] = int32(i)
	}
	want := make([]float64, 1<<16)
	for i := range want {
		exp, frac := i>>10&31, float64(i&1023)
		switch exp {
		case 0:
			want[i] = math.Ldexp(frac, -24)
		case 31:
			want[i] = math.Inf(1)
			if frac > 0 {
				want[i] = math.NaN()
			}
		default:
			want[i] = math.Ldexp(1024+frac, exp-25)
		}
		if i>>15 == 1 {
			want[i] = -want[i]
		}
	}
	got := evaluate(t, kernel.Embedding{Float: kernel.F64}, i32s(ids), table)[0].F64()
	for i, w := range want {
		if got[i] != w && !(math.IsNaN(w) && math.IsNaN(got[i])) {
			t.Fatalf("f16 %#04x is %v, want %v", i, got[i], w)
		}
	}
	bf := zeros(kernel.BF16, 2, 1)
	bf.U16()[0], bf.U16()[1] = 0x3f80, 0xc060
	nan := math.NaN()
	got = evaluate(t, kernel.Embedding{Float: kernel.F64}, i32s([]int32{1, 0, 2, -1}), bf)[0].F64()
	near(t, "bf16", got, []float64{-3.5, 1, nan, nan}, 0)
}
