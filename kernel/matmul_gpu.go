//go:build gpu

package kernel

func (k MatMul) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return k.op(typesOf(in), typesOf(out), 0).bind(g, out[0].Ptr, in[0].Ptr, in[1].Ptr, g.Scratch)
}

func (k MatMulTo) GPU(g *GPU, in, out []DeviceTensor) (func() error, error) {
	return MatMul(k).op(typesOf(in), typesOf(out), 1).bind(g, out[0].Ptr, in[0].Ptr, in[1].Ptr, g.Scratch)
}

func typesOf(t []DeviceTensor) []Type {
	types := make([]Type, len(t))
	for i := range t {
		types[i] = t[i].Type
	}
	return types
}
