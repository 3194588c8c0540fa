package graph

import "github.com/tierlora/tierlora/kernel"

// naive runs calls one after the other with memory of its own for every value.
type naive struct {
	memory map[*Value]kernel.Tensor
	cpu    *kernel.CPU
}

func newNaive(inputs []*Value, fill func(name string, t kernel.Tensor)) *naive {
	n := &naive{map[*Value]kernel.Tensor{}, kernel.NewCPU(1)}
	for _, v := range inputs {
		t := kernel.NewTensor(v.Type, kernel.Alloc(v.Type.Bytes()))
		fill(v.Name, t)
		n.memory[v] = t
	}
	return n
}

func (n *naive) run(calls []call) {
	for i := range calls {
		c := &calls[i]
		in, out := make([]kernel.Tensor, len(c.in)), make([]kernel.Tensor, len(c.out))
		for j, v := range c.in {
			in[j] = n.memory[v]
		}
		for j, v := range c.out {
			out[j] = kernel.NewTensor(v.Type, kernel.Alloc(v.Type.Bytes()))
			for _, a := range overwrites(c) {
				if a.Out == j {
					out[j] = in[a.In]
				}
			}
			n.memory[v] = out[j]
		}
		n.cpu.Scratch = nil
		if s, ok := c.kernel.(kernel.Scratch); ok {
			n.cpu.Scratch = kernel.Alloc(s.Scratch(typesOf(c.in), 1))
		}
		c.kernel.CPU(n.cpu, in, out)()
	}
}

func typesOf(vs []*Value) []kernel.Type {
	t := make([]kernel.Type, len(vs))
	for i, v := range vs {
		t[i] = v.Type
	}
	return t
}

func copies(calls []*call) []call {
	out := make([]call, len(calls))
	for i, c := range calls {
		out[i] = call{kernel: c.kernel, in: append([]*Value(nil), c.in...), out: append([]*Value(nil), c.out...)}
	}
	return out
}
