//go:build gpu

package kernel

import "github.com/tierlora/tierlora/kernel/gpu"

func (o AttentionQKV) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	p := o.at(in[0])
	return Attention(o).attend(g, p[0], p[1], p[2], in[1], out)
}

// at are queries, keys and values where they lie in qkv.
func (o AttentionQKV) at(qkv DeviceTensor) (p [3]DeviceTensor) {
	D := o.head(qkv.Type)
	for i, first := range []int{0, o.Heads, o.Heads + o.KVHeads} {
		p[i] = DeviceTensor{Type: qkv.Type, Ptr: qkv.Ptr.Add(int64(first * D * qkv.DType.Size()))}
	}
	return p
}

func (o AttentionQKVGrad) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	f := AttentionQKV(o)
	p, d := f.at(in[0]), f.at(out[0])
	return AttentionGrad(o).differentiate(g, append(p[:], in[1:4]...), in[4], [3]gpu.Ptr{d[0].Ptr, d[1].Ptr, d[2].Ptr})
}
