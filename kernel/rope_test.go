package kernel_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/kernel/kerneltest"
)

func TestRoPE(t *testing.T) {
	positions := func(m int) kerneltest.Input {
		p := make([]int32, m)
		for i := range p {
			p[i] = int32(i * 7 % 11)
		}
		return kerneltest.Ints(p, m)
	}
	for _, inverse := range []bool{false, true} {
		for _, s := range []struct{ rows, heads, head int }{{5, 3, 6}, {1, 1, 2}, {7, 3, 8}, {130, 4, 64}} {
			k := kernel.RoPE{Heads: s.heads, Inverse: inverse}
			kerneltest.Run(t, kerneltest.Case{Name: kernel.T(kernel.F32, s.rows, s.heads, s.head).String(), Kernel: k,
				In: []kerneltest.Input{
					kerneltest.Normal(s.rows, s.heads*s.head), kerneltest.Normal(11, s.head), positions(s.rows),
				}, Bound: 1.5e-7})
		}
		for _, s := range []struct{ rows, heads, rest, head, turned int }{{5, 3, 0, 8, 6}, {4, 2, 1, 8, 8},
			{7, 3, 2, 128, 96}, {3, 1, 1, 6, 2}, {130, 4, 2, 64, 32}} {
			k := kernel.RoPE{Heads: s.heads, Rest: s.rest, HeadDim: s.head, Inverse: inverse}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%+v", s), Kernel: k, In: []kerneltest.Input{
				kerneltest.Normal(s.rows, (s.heads+s.rest)*s.head), kerneltest.Normal(11, s.turned), positions(s.rows),
			}, Bound: 1.5e-7})
		}
	}
}

// TestRoPEFrom: rotating the columns from one on is rotating these alone, to the bit where that takes no vectors; the
// columns in front of them stay.
func TestRoPEFrom(t *testing.T) {
	for _, s := range []struct{ rows, heads, rest, head, from, turned int }{{5, 3, 0, 8, 2, 6}, {7, 2, 1, 24, 16, 8},
		{3, 1, 1, 10, 3, 4}} {
		for _, interleaved := range []bool{false, true} {
			k := kernel.RoPE{Heads: s.heads, Rest: s.rest, HeadDim: s.head, From: s.from, Interleaved: interleaved}
			p := make([]int32, s.rows)
			for i := range p {
				p[i] = int32(i * 7 % 11)
			}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%+v", k), Kernel: k, In: []kerneltest.Input{
				kerneltest.Normal(s.rows, (s.heads+s.rest)*s.head), kerneltest.Normal(11, s.turned),
				kerneltest.Ints(p, s.rows)}, Bound: 1.5e-7})
			x, table := normal64(1, s.rows*s.heads*s.head), f64s(normal64(2, 11*s.turned), 11, s.turned)
			k.Rest = 0
			whole := evaluate(t, k, f64s(x, s.rows, s.heads*s.head), table, i32s(p))[0]
			part := kernel.HeadColumns{Heads: s.heads, Of: s.head, From: s.from, Width: s.turned}
			alone := kernel.RoPE{Heads: s.heads, Interleaved: interleaved}
			want := evaluate(t, alone, evaluate(t, part, f64s(x, s.rows, s.heads*s.head))[0], table, i32s(p))[0]
			near(t, "rotated", evaluate(t, part, whole)[0].F64(), want.F64(), 0)
			front := kernel.HeadColumns{Heads: s.heads, Of: s.head, Width: s.from}
			near(t, "in front", evaluate(t, front, whole)[0].F64(),
				evaluate(t, front, f64s(x, s.rows, s.heads*s.head))[0].F64(), 0)
		}
	}
	for what, o := range map[string]kernel.RoPE{"before": {Heads: 2, HeadDim: 8, From: -1},
		"beyond": {Heads: 2, HeadDim: 8, From: 6}} {
		if _, err := o.Shape([]kernel.Type{kernel.T(kernel.F32, 4, 16), kernel.T(kernel.F32, 9, 4),
			kernel.T(kernel.I32, 4)}); err == nil {
			t.Errorf("%s: %+v is accepted", what, o)
		}
	}
}

func TestRoPEInterleaved(t *testing.T) {
	for _, inverse := range []bool{false, true} {
		for _, s := range []struct{ rows, heads, rest, head, turned int }{{1, 1, 0, 2, 2}, {5, 3, 0, 6, 6},
			{7, 3, 1, 8, 8}, {7, 3, 2, 24, 10}, {130, 4, 2, 64, 32}} {
			k := kernel.RoPE{Heads: s.heads, Rest: s.rest, HeadDim: s.head, Inverse: inverse, Interleaved: true}
			p := make([]int32, s.rows)
			for i := range p {
				p[i] = int32(i * 7 % 11)
			}
			kerneltest.Run(t, kerneltest.Case{Name: fmt.Sprintf("%+v", s), Kernel: k, In: []kerneltest.Input{
				kerneltest.Normal(s.rows, (s.heads+s.rest)*s.head), kerneltest.Normal(11, s.turned),
				kerneltest.Ints(p, s.rows),
			}, Bound: 1.5e-7})
		}
	}
}

// TestRoPEInterleavedIsHalves: a rotation of neighbours is that of halves of permuted columns, to the bit where that
// takes no vectors.
func TestRoPEInterleavedIsHalves(t *testing.T) {
	const rows, heads, head, turned = 6, 3, 24, 14
	x, table := normal32(1, rows*heads*head), f32s(normal32(2, 9*turned), 9, turned)
	positions := i32s([]int32{0, 3, 8, 1, 7, 4})
	from := func(i int) int { // where column i of halves is among neighbours
		h, c := i/head*head, i%head
		switch {
		case c < turned/2:
			return h + 2*c
		case c < turned:
			return h + 2*(c-turned/2) + 1
		}
		return i
	}
	halves := make([]float32, len(x))
	for i := range x {
		halves[i] = x[from(i)]
	}
	for _, inverse := range []bool{false, true} {
		want := evaluate(t, kernel.RoPE{Heads: heads, HeadDim: head, Inverse: inverse}, f32s(halves, rows, heads*head),
			table, positions)[0].F32()
		got := evaluate(t, kernel.RoPE{Heads: heads, HeadDim: head, Inverse: inverse, Interleaved: true},
			f32s(x, rows, heads*head), table, positions)[0].F32()
		for i := range want {
			if got[from(i)] != want[i] {
				t.Fatalf("inverse %v, column %d: %v, of halves %v", inverse, i, got[from(i)], want[i])
			}
		}
	}
}

// TestRoPEOfAPart: the columns that are rotated have the bits of heads of that size, the others stay.
func TestRoPEOfAPart(t *testing.T) {
	const rows, heads, rest, head, turned = 6, 3, 2, 24, 16
	x, table := normal32(1, rows*(heads+rest)*head), f32s(normal32(2, 9*turned), 9, turned)
	positions := i32s([]int32{0, 3, 8, 1, 7, 4})
	var part []float32 // of every rotated head, the columns that are rotated
	for r := range rows {
		for h := range heads {
			part = append(part, x[(r*(heads+rest)+h)*head:][:turned]...)
		}
	}
	want := evaluate(t, kernel.RoPE{Heads: heads}, f32s(part, rows, heads*turned), table, positions)[0].F32()
	got := evaluate(t, kernel.RoPE{Heads: heads, Rest: rest, HeadDim: head}, f32s(x, rows, (heads+rest)*head), table,
		positions)[0].F32()
	for r := range rows {
		for h := range heads + rest {
			at, n := (r*(heads+rest)+h)*head, 0
			if h < heads {
				if n = turned; !slices.Equal(got[at:][:n], want[(r*heads+h)*turned:][:n]) {
					t.Errorf("row %d, head %d: the rotated columns differ", r, h)
				}
			}
			if !slices.Equal(got[at+n:at+head], x[at+n:at+head]) {
				t.Errorf("row %d, head %d: columns that stay have changed", r, h)
			}
		}
	}
}

// A rotation by position times frequency, as a product of complex numbers; outside the table NaN.
func TestRoPEMeaning(t *testing.T) {
	const heads, head, limit = 2, 6, 9
	positions := []int32{0, 3, 8, 9, -1}
	x, table := normal64(3, len(positions)*heads*head), make([]float64, limit*head)
	angle := func(p, i int) float64 { return float64(p) * math.Pow(10000, -2*float64(i)/head) }
	for p := range limit {
		for i := range head / 2 {
			table[p*head+i], table[p*head+head/2+i] = math.Cos(angle(p, i)), math.Sin(angle(p, i))
		}
	}
	for _, sign := range []float64{1, -1, 2, -2} { // twice: neighbours
		want := make([]float64, len(x))
		interleaved := math.Abs(sign) == 2
		sign /= math.Abs(sign)
		for row, p := range positions {
			for h := range heads {
				for i := range head / 2 {
					a, b := row*heads*head+h*head+i, row*heads*head+h*head+head/2+i
					if interleaved {
						a = row*heads*head + h*head + 2*i
						b = a + 1
					}
					want[a], want[b] = math.NaN(), math.NaN()
					if p >= 0 && p < limit {
						s, c := math.Sincos(sign * angle(int(p), i))
						z := complex(x[a], x[b]) * complex(c, s)
						want[a], want[b] = real(z), imag(z)
					}
				}
			}
		}
		out := evaluate(t, kernel.RoPE{Heads: heads, Inverse: sign < 0, Interleaved: interleaved},
			f64s(x, len(positions), heads*head), f64s(table, limit, head), i32s(positions))
		near(t, "y", out[0].F64(), want, 1e-14)
	}
}

func TestRoPERefuses(t *testing.T) {
	x, p := kernel.T(kernel.F32, 2, 12), kernel.T(kernel.I32, 2)
	for what, in := range map[string][]kernel.Type{
		"an odd head":          {x, kernel.T(kernel.F32, 9, 3), p},
		"a head of other size": {x, kernel.T(kernel.F32, 9, 4), p},
		"mixed floats":         {x, kernel.T(kernel.F64, 9, 6), p},
	} {
		heads := 2
		if what == "an odd head" {
			heads = 4
		}
		if _, err := (kernel.RoPE{Heads: heads}).Shape(in); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	for what, k := range map[string]kernel.RoPE{
		"a table wider than the heads": {Heads: 3, HeadDim: 4}, "heads that do not fill a row": {Heads: 1, HeadDim: 6},
		"a negative rest": {Heads: 3, Rest: -1, HeadDim: 6},
	} {
		if _, err := k.Shape([]kernel.Type{x, kernel.T(kernel.F32, 9, 6), p}); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

func TestPositionsByLength(t *testing.T) {
	k := kernel.PositionsByLength{Limit: 3, Offset: 100}
	positions := []int32{0, 1, 2, 0, 1, 2, 3, 0, 1, 7}
	for _, c := range []struct {
		name     string
		cu, want []int32
	}{
		{"two short, one long", []int32{0, 3, 7, 9}, []int32{0, 1, 2, 100, 101, 102, 103, 0, 1, 7}},
		{"none", []int32{0}, positions},
		{"empty ones between", []int32{0, 0, 4, 4, 8, 8}, []int32{100, 101, 102, 100, 101, 102, 103, 100, 1, 7}},
		{"after the first rows", []int32{5, 9}, []int32{0, 1, 2, 0, 1, 102, 103, 100, 101, 7}},
		{"bounds that are none", []int32{math.MinInt32, math.MaxInt32},
			[]int32{100, 101, 102, 100, 101, 102, 103, 100, 101, 107}},
	} {
		kerneltest.Run(t, kerneltest.Case{Name: c.name, Kernel: k,
			In: []kerneltest.Input{kerneltest.Ints(positions, len(positions)), kerneltest.Ints(c.cu, len(c.cu))}})
		if got := evaluate(t, k, i32s(positions), i32s(c.cu))[0].I32(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
