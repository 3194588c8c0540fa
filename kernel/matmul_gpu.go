//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/gpu"

func (k MatMul) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k MatMul) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	return k.op(typesOf(in), typesOf(out), beta).bind(g, out[0].Ptr, in[0].Ptr, in[1].Ptr, g.Scratch)
}

func typesOf(t []DeviceTensor) []Type {
	types := make([]Type, len(t))
	for i := range t {
		types[i] = t[i].Type
	}
	return types
}

func (k GroupedMatMul) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

// bindGPU is one launch where the addresses allow it, else the GEMMs one by one.
func (k GroupedMatMul) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	p := k.one().op(each(k, in[0].Type, in[1].Type), typesOf(out), beta)
	shared, own, to := addresses(in[:1]), addresses(in[1:1+k.N]), addresses(out)
	a, b := shared, own
	if k.TransA {
		a, b = own, shared
	}
	if work, ok, err := p.bindLowRank(g, to, a, b, g.Scratch); ok || err != nil {
		return work, err
	}
	all := make([]func() error, k.N)
	for i := range all {
		pair := each(k, shared[0], own[i])
		work, err := p.bind(g, to[i], pair[0], pair[1], g.Scratch)
		if err != nil {
			return nil, err
		}
		all[i] = work
	}
	return inOrder(all...), nil
}

func addresses(t []DeviceTensor) []gpu.Ptr {
	p := make([]gpu.Ptr, len(t))
	for i := range t {
		p[i] = t[i].Ptr
	}
	return p
}

func (k MatMulSum) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.bindGPU(g, in, out, 0)
}

func (k MatMulSum) bindGPU(g *GPU, in, out []DeviceTensor, beta float32) (func() error, error) {
	p := k.one().op(typesOf(in), typesOf(out), beta)
	a, b := make([]gpu.Ptr, k.N), make([]gpu.Ptr, k.N)
	for i := range k.N {
		a[i], b[i] = in[2*i].Ptr, in[2*i+1].Ptr
	}
	if work, ok, err := p.bindLowRank(g, []gpu.Ptr{out[0].Ptr}, a, b, g.Scratch); ok || err != nil {
		return work, err
	}
	all := make([]func() error, k.N)
	for i := range all {
		if i > 0 {
			p.beta = 1
		}
		work, err := p.bind(g, out[0].Ptr, a[i], b[i], g.Scratch)
		if err != nil {
			return nil, err
		}
		all[i] = work
	}
	return inOrder(all...), nil
}
