package kernel_test

import (
	"fmt"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

// lowBits are residual low bits of any value: the CPU keeps sums whole and reads none.
func lowBits(rows, cols int) kerneltest.Input {
	b := make([]byte, rows*cols)
	for i := range b {
		b[i] = byte(i * 37)
	}
	return kerneltest.Bytes(b, rows, cols)
}

// TestFusedKernels: what a GPU's plan has in place of a sum and its norm keeps the contract of kernels on the CPU.
func TestFusedKernels(t *testing.T) {
	var cases []kerneltest.Case
	for _, s := range [][2]int{{1, 1}, {3, 17}, {32, 48}} {
		x, r, w := kerneltest.Normal(s[0], s[1]), kerneltest.Normal(s[0], s[1]), kerneltest.Normal(s[1])
		add := func(name string, k kernel.Kernel, in ...kerneltest.Input) {
			cases = append(cases, kerneltest.Case{Name: fmt.Sprintf("%s %v", name, s), Kernel: k, In: in, Bound: 1e-6})
		}
		add("sum with low bits", kernel.AddLowBits{}, x, r)
		add("sum of one with low bits", kernel.AddLowBits{Carried: true}, x, r, lowBits(s[0], s[1]))
		add("norm of a sum with low bits", kernel.RMSNormLowBits{Eps: 1e-5}, x, w, lowBits(s[0], s[1]))
		add("sum and norm", kernel.AddRMSNorm{Eps: 1e-5}, x, r, w)
		add("sum with low bits and norm", kernel.AddRMSNorm{Eps: 1e-5, LowBits: true}, x, r, w)
		add("sum of one with low bits and norm", kernel.AddRMSNorm{Eps: 1e-5, LowBits: true, Carried: true}, x, r, w, lowBits(s[0], s[1]))
		add("sum and norm, plus one", kernel.AddRMSNorm{Eps: 1e-5, PlusOne: true, LowBits: true}, x, r, w)
		add("norm of a sum with low bits, plus one", kernel.RMSNormLowBits{Eps: 1e-5, PlusOne: true}, x, w, lowBits(s[0], s[1]))
		add("gradient of a norm, added, plus one", kernel.RMSNormGradTo{PlusOne: true}, x, w, kerneltest.Normal(s[0]), r, x)
		add("gradient of a norm, added", kernel.RMSNormGradTo{}, x, w, kerneltest.Normal(s[0]), r, x)
	}
	kerneltest.Run(t, cases...)
}

// TestFusedKernelsAreTheirParts: the same numbers, bit for bit, as the kernels that they stand for.
func TestFusedKernelsAreTheirParts(t *testing.T) {
	const M, C = 5, 24
	numbers := func(scale float32, shape ...int) kernel.Tensor {
		x := kernel.NewTensor(kernel.T(kernel.F32, shape...), kernel.Alloc(kernel.T(kernel.F32, shape...).Bytes()))
		for i := range x.F32() {
			x.F32()[i] = scale * float32((i*7919)%101-50)
		}
		return x
	}
	x, r, w, low := numbers(.03, M, C), numbers(.01, M, C), numbers(.02, C), tensorOf(make([]byte, M*C))
	low.Shape = []int{M, C}
	sum := apply(t, kernel.Add{}, x, r)[0]
	norm := apply(t, kernel.RMSNorm{Eps: 1e-5}, sum, w)
	same := func(name string, got, want kernel.Tensor) {
		t.Helper()
		if string(got.Bytes()) != string(want.Bytes()) {
			t.Errorf("%s: %v, want %v", name, got.F32(), want.F32())
		}
	}
	plain := apply(t, kernel.AddRMSNorm{Eps: 1e-5}, x, r, w)
	same("sum", plain[0], sum)
	same("norm", plain[1], norm[0])
	same("rstd", plain[2], norm[1])
	kept := apply(t, kernel.AddRMSNorm{Eps: 1e-5, LowBits: true, Carried: true}, x, r, w, low)
	same("sum with low bits", kept[0], sum)
	same("its norm", kept[2], norm[0])
	same("its rstd", kept[3], norm[1])
	for i, b := range kept[1].Bytes() {
		if b != 0x80 { // nothing beyond the stored number
			t.Fatalf("low bits %d are %#x", i, b)
		}
	}
	same("norm of a sum with low bits", apply(t, kernel.RMSNormLowBits{Eps: 1e-5}, sum, w, kept[1])[0], norm[0])
	dy, addend := numbers(.05, M, C), numbers(.04, M, C)
	grad := apply(t, kernel.RMSNormGrad{}, x, w, norm[1], dy)[0]
	want := apply(t, kernel.Add{}, addend, grad)[0]
	same("gradient onto the residual's", apply(t, kernel.RMSNormGradTo{}, x, w, norm[1], dy, addend)[0], want)
}
