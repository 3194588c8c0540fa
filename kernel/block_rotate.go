package kernel

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/cuda"
)

// BlockRotate multiplies blocks of Block columns, each by a square matrix of its own.
//
//	x f[M,C], r f[C,B] -> y f[M,C];  y[m,jB+c] = sum over k of x[m,jB+k] r[jB+k,c], with TransB r[jB+c,k]
//
// B is Block, block j counts from 0 to C/B-1, k and c from 0 to B-1.
type BlockRotate struct {
	Block  int
	TransB bool
}

// Name returns block_rotate.
func (BlockRotate) Name() string { return "block_rotate" }

// Shape checks the inputs and returns the type of x.
func (o BlockRotate) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[C,B]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := checkBlocks(in[0], d.At('C'), o.Block); err != nil {
		return nil, err
	}
	if d.At('B') != o.Block {
		return nil, fmt.Errorf("input 1 is %v, want rows of %d", in[1], o.Block)
	}
	return []Type{in[0]}, nil
}

func checkBlocks(x Type, columns, block int) error {
	if block < 1 || columns%block != 0 {
		return fmt.Errorf("input 0 is %v: its columns are no whole blocks of %d", x, block)
	}
	return nil
}

// Grads has the gradients of both inputs.
func (o BlockRotate) Grads() Backward {
	dr := []Ref{In(0), Upstream()}
	if o.TransB {
		dr = []Ref{Upstream(), In(0)}
	}
	return Backward{
		Calls: []Call{{BlockRotate{o.Block, !o.TransB}, []Ref{Upstream(), In(1)}}, {BlockOuter{o.Block}, dr}},
		Grads: []Ref{FromCall(0, 0), FromCall(1, 0)},
	}
}

// CPU multiplies row by row.
func (o BlockRotate) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], blockRotate[float32], blockRotate[float64])(o, c, in, out)
}

func blockRotate[F Float](o BlockRotate, c *CPU, in, out []Tensor) func() {
	x, r, y, n := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), o.Block
	width := in[0].Shape[1]
	along, down := 1, n // steps in r from one c to the next, and from one k to the next
	if o.TransB {
		along, down = n, 1
	}
	return c.Range(in[0].Shape[0], rowGrain(width*n), func(lo, hi int) {
		for at := lo * width; at < hi*width; at += n {
			m := r[at%width*n:][:n*n]
			for c := range n {
				var sum F
				for k, v := range x[at:][:n] {
					sum += v * m[k*down+c*along]
				}
				y[at+c] = sum
			}
		}
	})
}

// Cost counts a product of B terms for each number.
func (o BlockRotate) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], o.Block)
}

// Stored keeps everything in the compute type.
func (BlockRotate) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

// BlockOuter is the gradient of BlockRotate for the matrices: the products of the blocks of two matrices, summed over
// their rows.
//
//	a f[M,C], b f[M,C] -> y f[C,B];  y[jB+k,c] = sum over m of a[m,jB+k] b[m,jB+c]
type BlockOuter struct{ Block int }

// blockOuterSlice is the number of rows whose products a thread block of a GPU sums.
const blockOuterSlice = 512

// Name returns block_outer.
func (BlockOuter) Name() string { return "block_outer" }

// Shape checks the inputs and returns the type of the matrices.
func (o BlockOuter) Shape(in []Type) ([]Type, error) {
	d, err := Want(in, "f[M,C]", "f[M,C]")
	if err != nil {
		return nil, err
	}
	if err := sameElements(in, 0, 1); err != nil {
		return nil, err
	}
	if err := checkBlocks(in[0], d.At('C'), o.Block); err != nil {
		return nil, err
	}
	return []Type{T(in[0].DType, d.At('C'), o.Block)}, nil
}

// CPU sums block by block, in the order of the rows.
func (o BlockOuter) CPU(c *CPU, in, out []Tensor) func() {
	return byFloat(in[0], blockOuter[float32], blockOuter[float64])(o, c, in, out)
}

func blockOuter[F Float](o BlockOuter, c *CPU, in, out []Tensor) func() {
	a, b, y, n := Floats[F](in[0]), Floats[F](in[1]), Floats[F](out[0]), o.Block
	width := in[0].Shape[1]
	return c.Range(width/n, rowGrain(in[0].Shape[0]*n*n), func(lo, hi int) {
		clear(y[lo*n*n : hi*n*n])
		for j := lo; j < hi; j++ {
			sum := y[j*n*n:][:n*n]
			for at := j * n; at < len(a); at += width {
				right := b[at:][:n]
				for k, v := range a[at:][:n] {
					row := sum[k*n:][:n]
					for c, w := range right {
						row[c] += v * w
					}
				}
			}
		}
	})
}

// Cost counts a product of every pair of numbers of a block.
func (o BlockOuter) Cost(in, out []Type, _ Content) Cost {
	return gemmCost(in, out, in[0].Shape[0], in[0].Shape[1], o.Block)
}

// Stored keeps everything in the compute type.
func (BlockOuter) Stored([]DType) (want, out []DType) {
	return []DType{ComputeType, ComputeType}, []DType{ComputeType}
}

// ScratchGPU returns the bytes of the sums of slices of the rows, in fp32.
func (BlockOuter) ScratchGPU(in, out []Type, _ int) int64 {
	return int64(cuda.BlockSlices(in[0].Shape[0], blockOuterSlice)) * int64(out[0].Elems()) * 4
}
