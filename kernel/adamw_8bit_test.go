package kernel_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
	"github.com/tierlora/tierlora/quant"
)

// TestAdamW8Bit: tensors of one number, of a block and a bit, of several blocks; at odd places, and without some of the kinds.
func TestAdamW8Bit(t *testing.T) {
	var cases []kerneltest.Case
	for _, c := range []struct {
		n         int
		blocks    [][2]int32
		quantised int
	}{{1, [][2]int32{{0, 1}}, 1}, {300, [][2]int32{{1, 256}, {257, 20}, {280, 19}}, 2}, {40, [][2]int32{{0, 40}}, 0}, {700, [][2]int32{{0, 256}, {256, 256}, {512, 188}}, 3}} {
		q, r := max(c.quantised, 1), max(len(c.blocks)-c.quantised, 1)
		var table []int32
		for _, b := range c.blocks {
			table = append(table, b[0], b[1])
		}
		codes := make([]byte, 256*q)
		for i := range codes {
			codes[i] = byte(i*37 + 5)
		}
		for _, decay := range []float64{0, 0.1} {
			cases = append(cases, kerneltest.Case{
				Name: fmt.Sprintf("%d decay %v", c.n, decay), Bound: 1e-6,
				Kernel: kernel.AdamW8Bit{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: decay, Quantised: c.quantised},
				In: []kerneltest.Input{
					kerneltest.Normal(c.n), kerneltest.Normal(c.n), kerneltest.Bytes(codes, 256*q), kerneltest.Bytes(codes, 256*q),
					kerneltest.Uniform(0.1, 2, q), kerneltest.Uniform(0.1, 2, q), kerneltest.Normal(256 * r), kerneltest.Uniform(0.01, 2, 256*r),
					kerneltest.Ints(table, len(c.blocks), 2), kerneltest.Values([]float64{3, 0.3}, 2), kerneltest.Values([]float64{1e-2, 0.271, 0.002997, 0}, 4),
				},
			})
		}
	}
	kerneltest.Run(t, cases...)
}

// TestDeviceMapsAreQuants: the numbers in the device code are those of package quant.
func TestDeviceMapsAreQuants(t *testing.T) {
	source, err := os.ReadFile("cuda/dynamic_map.cuh")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*quant.DynamicMap{"signed_map": quant.DynamicSigned, "unsigned_map": quant.DynamicUnsigned} {
		_, rest, found := bytes.Cut(source, []byte(name+"[256] = {"))
		list, _, ended := bytes.Cut(rest, []byte("}"))
		numbers := regexp.MustCompile(`[^\s,]+`).FindAllString(string(list), -1)
		if !found || !ended || len(numbers) != 256 {
			t.Fatalf("%s: %d numbers", name, len(numbers))
		}
		for i, n := range numbers {
			x, err := strconv.ParseFloat(n[:len(n)-1], 32)
			if err != nil || float32(x) != m.Values[i] || n[len(n)-1] != 'f' {
				t.Errorf("%s[%d] is %s, want %v (%v)", name, i, n, m.Values[i], err)
			}
		}
	}
}

// momentsOf8 are the inputs of AdamW8Bit over one tensor of p in 8 bits.
func momentsOf8(p []float32) (k kernel.AdamW8Bit, in []kernel.Tensor) {
	q := (len(p) + 255) / 256
	var table []int32
	for at := 0; at < len(p); at += 256 {
		table = append(table, int32(at), int32(min(256, len(p)-at)))
	}
	u8 := func() kernel.Tensor {
		return kernel.NewTensor(kernel.T(kernel.U8, 256*q), kernel.Alloc(int64(256*q)))
	}
	i32 := kernel.NewTensor(kernel.T(kernel.I32, q, 2), kernel.Alloc(int64(8*q)))
	copy(i32.I32(), table)
	zero := func(n int) kernel.Tensor { return tensor32(make([]float32, n), n) }
	return kernel.AdamW8Bit{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, Quantised: q}, []kernel.Tensor{
		tensor32(p, len(p)), zero(len(p)), u8(), u8(), zero(q), zero(q), zero(256), zero(256), i32, tensor32([]float32{1, 1}, 2), zero(4)}
}

// TestAdamW8BitExtremes: gradients from the least number to the largest leave nothing that is not finite, a block of zeros stays zero,
// a negative moment stays negative, and a clip factor that is not a number changes no byte.
func TestAdamW8BitExtremes(t *testing.T) {
	p := make([]float32, 1024)
	k, in := momentsOf8(p)
	run, _ := work(t, 1, k, in...)
	copy(in[10].F32(), []float32{1e-3, 0.1, 0.001, 0})
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		for i := range in[1].F32() {
			switch i / 256 {
			case 0:
				in[1].F32()[i] = math.SmallestNonzeroFloat32
			case 1:
				in[1].F32()[i] = float32(r.NormFloat64()) * 1e37
			case 2:
				in[1].F32()[i] = float32(math.Copysign(math.Pow(10, -float64(r.IntN(20))), r.NormFloat64()))
			}
		}
		run()
	}
	for o, name := range map[int]string{0: "parameter", 4: "absmax", 5: "absmax of squares"} {
		for i, x := range in[o].F32() {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("%s %d is %v", name, i, x)
			}
		}
	}
	if a := in[4].F32(); a[3] != 0 || a[0] != 0 || a[2] == 0 {
		t.Errorf("scales %v", a)
	}
	for i, c := range in[2].Bytes()[768:] {
		if c != 127 || in[3].Bytes()[768+i] != 0 || in[0].F32()[768+i] != 0 {
			t.Fatalf("number %d of a block without gradient: codes %d and %d, parameter %v", i, c, in[3].Bytes()[768+i], in[0].F32()[768+i])
		}
	}
	before := append(bytes.Clone(in[2].Bytes()), in[0].Bytes()...)
	in[9].F32()[1] = float32(math.NaN())
	run()
	if !bytes.Equal(before, append(bytes.Clone(in[2].Bytes()), in[0].Bytes()...)) {
		t.Error("a step without a clip factor changed something")
	}
	k, in = momentsOf8(make([]float32, 256))
	run, _ = work(t, 1, k, in...)
	copy(in[10].F32(), []float32{1e-3, 0.1, 0.001, 0})
	for i := range 256 {
		in[1].F32()[i] = -1e-12
	}
	in[1].F32()[0], in[1].F32()[1] = 1, 1e-12
	run()
	if c := in[2].Bytes(); c[0] != 255 || c[1] != 127 || c[2] != 126 || c[255] != 126 {
		t.Errorf("codes of a large, a small positive and small negative moments: %v", c[:3])
	}
}
