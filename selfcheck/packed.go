package selfcheck

import (
	"fmt"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
)

// packedInputs returns the parts of a packed weight.
func packedInputs(p quant.Packed) []checkInput {
	bytes := func(v []byte) checkInput {
		x := checkInput{typ: kernel.U8, shape: []int{len(v)}, values: make([]float64, len(v))}
		for i, b := range v {
			x.values[i] = float64(b)
		}
		return x
	}
	scales := func(v ...float32) checkInput {
		x := checkInput{typ: kernel.F32, shape: []int{len(v)}, values: make([]float64, len(v))}
		for i, f := range v {
			x.values[i] = float64(f)
		}
		return x
	}
	if p.Nested() {
		return []checkInput{bytes(p.Codes), bytes(p.AbsmaxU8), scales(p.Absmax2...), scales(p.Offset)}
	}
	return []checkInput{bytes(p.Codes), scales(p.Absmax...)}
}

// packedKernels returns the kernels of a weight that is stored packed: y = x Wᵀ or x W, the same onto an addend, and W.
func packedKernels(c quant.Config, rows, cols int, transposed bool, float kernel.DType) (matMul, onto,
	dequantise kernel.Kernel) {
	if c.Type == "int8" {
		k := kernel.MatMulInt8{N: rows, K: cols, Transposed: transposed}
		return k, kernel.Onto[kernel.MatMulInt8]{Of: k}, kernel.DequantiseInt8{N: rows, K: cols, Float: float}
	}
	k := kernel.MatMulNF4{N: rows, K: cols, Nested: c.DoubleQuant, Transposed: transposed, Map: c.Map,
		FP4: c.Type == "fp4"}
	return k, kernel.Onto[kernel.MatMulNF4]{Of: k}, kernel.DequantiseNF4{N: rows, K: cols, Nested: c.DoubleQuant,
		Float: float, Map: c.Map, FP4: k.FP4}
}

// packedStores are the ways in which weights are stored packed.
var packedStores = []quant.Config{
	{Bits: 4, Type: "nf4", BlockSize: 64}, {Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: true},
	{Bits: 4, Type: "nf4", BlockSize: 64, DoubleQuant: true, Map: quant.MapCUDA},
	{Bits: 4, Type: "fp4", BlockSize: 64}, {Bits: 4, Type: "fp4", BlockSize: 64, DoubleQuant: true},
	quant.DefaultOf("int8"),
}

// allPackedChecks returns GEMMs with packed weights, and the weights.
func allPackedChecks(n checkNumbers) []check {
	var all []check
	for _, w := range [][2]int{{64, 64}, {172, 64}, {64, 172}, {576, 192}, {33, 40}} {
		for i, c := range packedStores {
			if i > 1 && w != [2]int{172, 64} && w != [2]int{33, 40} {
				continue // the kernels' shapes were seen with the others
			}
			source := n.normal32(0.5, w[0], w[1])
			row := make([]float32, len(source.values))
			for i, x := range source.values {
				row[i] = float32(x)
			}
			packed, err := quantised(row, w[0], w[1], c)
			if err != nil {
				panic(err) // a broken list of checks
			}
			for _, M := range checkRows {
				all = append(all, packedChecks(n, M, packed, c)...)
			}
			all = append(all, dequantiseCheck(packed, c))
		}
	}
	return all
}

// quantised returns a weight stored as c says; with the table of CUDA's scales one scale is its lowest entry.
func quantised(x []float32, rows, cols int, c quant.Config) (quant.Packed, error) {
	from := c
	from.Map = quant.MapCPU
	p, err := quant.Quantise(x, rows, cols, from)
	if err == nil && c.Map != quant.MapCPU {
		p.Table2, p.AbsmaxU8[0] = c.Map.Table(), 0
	}
	return p, err
}

// storeName returns what a way of storage adds to the name of a check.
func storeName(c quant.Config) string {
	name := ""
	if c.Type != "nf4" {
		name += ", " + c.Type
	}
	if c.DoubleQuant {
		name += ", scales in 8 bits"
	}
	if c.Map == quant.MapCUDA {
		name += " with CUDA's table"
	}
	return name
}

// dequantiseCheck returns the weight that a packed one stands for.
func dequantiseCheck(p quant.Packed, c quant.Config) check {
	_, _, named := packedKernels(c, p.Rows, p.Cols, false, kernel.F32)
	return check{kernel: named.Name(), name: fmt.Sprintf("[%d,%d]%s", p.Rows, p.Cols, storeName(c)),
		bounds: []bound{rounded}, in: packedInputs(p),
		build: func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			_, _, k := packedKernels(c, p.Rows, p.Cols, false, g.Float())
			return g.ApplyAll(k, in...)
		}}
}

func packedChecks(n checkNumbers, M int, p quant.Packed, c quant.Config) []check {
	weight := packedInputs(p)
	dequantised := make([]float32, p.Len())
	p.Dequantise(dequantised)
	weights := func(f format) []float64 { // as the device dequantises them
		w := make([]float64, p.Len())
		for i, x := range dequantised {
			w[i] = f.round(float64(x))
		}
		return w
	}
	var all []check
	for _, transposed := range []bool{false, true} {
		k, accumulate, _ := packedKernels(c, p.Rows, p.Cols, transposed, kernel.F32)
		wide, _ := k.(kernel.FP32Output).WithFP32Out()
		in, out := p.Cols, p.Rows
		name := fmt.Sprintf("x Wᵀ, [%d,%d,%d]", M, out, in)
		if transposed {
			in, out = out, in
			name = fmt.Sprintf("x W, [%d,%d,%d]", M, out, in)
		}
		name += storeName(c)
		inputs := append([]checkInput{n.normal(1, M, in)}, weight...)
		last := len(inputs)
		onto := func(g *graph.Builder, in []*graph.Value) []*graph.Value {
			return g.ApplyAll(accumulate, append(in[:last:last], g.Apply(kernel.Add{}, in[last], in[last+1]))...)
		}
		plain := func(f format, v [][]float64) [][]float64 {
			y := plainGEMM(f, v[0], weights(f), M, out, in, p.Cols, transposed)
			if len(v) > last {
				axpy(y, 1, v[last])
				f.all(y)
			}
			return [][]float64{y}
		}
		all = append(all,
			check{kernel: k.Name(), name: name, build: one(k), bounds: []bound{rounded}, in: inputs, plain: plain,
				gemm: true},
			check{kernel: k.Name(), name: name + " in fp32", build: one(wide), bounds: []bound{rounded}, in: inputs,
				plain: plain, gemm: true},
			check{kernel: k.Name(), name: name + " onto activations", build: onto, bounds: []bound{rounded},
				plain: plain, gemm: true,
				in: append(inputs[:last:last], n.normal(2, M, out), zeros(M, out))})
		if apart, ok := k.(kernel.RowsApart); ok && !transposed && M <= 256 {
			all = append(all, check{kernel: k.Name(), name: name + ", rows apart", build: one(apart.WithRowsApart()),
				bounds: []bound{rounded}, in: inputs, plain: plain, gemm: true})
		}
	}
	return all
}

// plainGEMM returns x Wᵀ, or x W, with the packed weight dequantised and rounded, rows of W cols numbers long.
func plainGEMM(f format, x, w []float64, M, out, in, cols int, transposed bool) []float64 {
	y := make([]float64, M*out)
	for m := range M {
		row, x := y[m*out:][:out], x[m*in:][:in]
		if transposed {
			for k, v := range x {
				axpy(row, v, w[k*cols:])
			}
			continue
		}
		for n := range row {
			row[n] = dot(x, w[n*cols:])
		}
	}
	f.all(y)
	return y
}
