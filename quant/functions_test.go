package quant

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

const functions = "../internal/golden/testdata/prequantised/functions.safetensors.gz"

// inputs are the matrices that bitsandbytes' CPU functions were given.
func inputs(t *testing.T, g map[string]tensor, do func(t *testing.T, name string, x []float32, rows, cols int)) {
	cases := 0
	for name, in := range g {
		if name, ok := strings.CutSuffix(name, ".input"); ok {
			cases++
			t.Run(name, func(t *testing.T) { do(t, name, floats(t, in), in.Shape[0], in.Shape[1]) })
		}
	}
	if cases != 7 {
		t.Errorf("%d cases, want 7", cases)
	}
}

func TestFP4EqualsBitsandbytes(t *testing.T) {
	g := readTensors(t, functions)
	for i, v := range floats(t, g["fp4.code"]) {
		if v != fp4Table[i] {
			t.Errorf("code %d stands for %v, want %v", i, fp4Table[i], v)
		}
	}
	inputs(t, g, func(t *testing.T, name string, x []float32, rows, cols int) {
		c := DefaultOf("fp4")
		c.DoubleQuant = false
		p := mustQuantise(t, x, rows, cols, c)
		if want := g[name+".fp4.packed"].Data; !slices.Equal(p.Codes, want) {
			t.Errorf("codes differ from byte %d of %d on", differs(p.Codes, want), len(want))
		}
		sameBits(t, "absmax", p.Absmax, floats(t, g[name+".fp4.absmax"]))
		y := make([]float32, p.Len())
		p.Dequantise(y)
		sameBits(t, "dequantised", y, floats(t, g[name+".fp4.dequantised"]))

		nested := mustQuantise(t, x, rows, cols, DefaultOf("fp4"))
		if !slices.Equal(nested.Codes, p.Codes) || !slices.Equal(nested.AbsmaxU8,
			g[name+".fp4.nested.absmax_u8"].Data) {
			t.Error("nested: codes differ")
		}
		// the reference's mean has another order
		if want := floats(t, g[name+".fp4.nested.offset"])[0]; ulps(nested.Offset, want) > 1 {
			t.Errorf("offset %v, want %v", nested.Offset, want)
		}
		for i, want := range floats(t, g[name+".fp4.nested.absmax2"]) {
			if math.Abs(float64(nested.Absmax2[i]-want)) > 1e-6*math.Abs(float64(want)) {
				t.Errorf("absmax2[%d] = %v, want %v", i, nested.Absmax2[i], want)
			}
		}
	})
}

// TestFP4CodeIsNearest: comparisons with magnitudes give the code that the reference's search gives, first of all next
// to where one code ends and the next begins.
func TestFP4CodeIsNearest(t *testing.T) {
	try := func(y float32) {
		if got, want := fp4Code(y), fp4Nearest(y); got != want {
			t.Fatalf("code of %v is %d, want %d", y, got, want)
		}
	}
	for _, sign := range []uint32{0, 1 << 31} {
		for _, least := range fp4Least[:8] {
			for d := range uint32(9) {
				try(math.Float32frombits(sign | (least+d)&^(1<<31)))
				if least > d {
					try(math.Float32frombits(sign | least - d))
				}
			}
		}
	}
	for y := float32(-1); y <= 1; y += 1e-6 {
		try(y)
	}
	try(1)
	inf := float32(math.Inf(1))
	if a, b, c := fp4Code(inf), fp4Code(-inf), fp4Code(float32(math.NaN())); a != 3 || b != 11 || c != 0 {
		t.Errorf("infinities and NaN have the codes %d, %d and %d", a, b, c)
	}
}

func TestInt8EqualsBitsandbytes(t *testing.T) {
	g := readTensors(t, functions)
	inputs(t, g, func(t *testing.T, name string, x []float32, rows, cols int) {
		p := mustQuantise(t, x, rows, cols, DefaultOf("int8"))
		if want := g[name+".int8.cb"].Data; !slices.Equal(p.Codes, want) {
			t.Errorf("codes differ from element %d of %d on", differs(p.Codes, want), len(want))
		}
		sameBits(t, "SCB", p.Absmax, floats(t, g[name+".int8.scb"]))
		y := make([]float32, p.Len())
		p.Dequantise(y)
		sameBits(t, "dequantised", y, floats(t, g[name+".int8.dequantised"]))
		if c := DefaultOf("int8"); c.Size(rows, cols) != p.Bytes() || p.Bytes() != int64(rows*cols+4*rows) {
			t.Errorf("%d bytes, %d are said", p.Bytes(), c.Size(rows, cols))
		}
		for _, from := range []int{0, 1, cols - 1, cols, 2*cols + 3} {
			part := make([]float32, 2*cols)
			p.DequantiseRange(part, from, from+len(part))
			sameBits(t, fmt.Sprint("from ", from), part, y[from:from+len(part)])
		}
	})
}

func differs(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestInt8Refuses(t *testing.T) {
	x := random(64, 3)
	x[37] = -70000
	_, err := Quantise(x, 4, 16, DefaultOf("int8"))
	want := "quantise a matrix [4,16]: row 2 column 5 is -70000, which type int8 can't hold: it goes through " +
		"float16, which ends at 65504"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	x[37] = float32(math.Inf(-1))
	if _, err := Quantise(x, 4, 16, DefaultOf("int8")); err == nil ||
		!strings.Contains(err.Error(), "row 2 column 5 is -Inf; a frozen weight must be finite") {
		t.Error(err)
	}
	c := DefaultOf("int8")
	c.DoubleQuant = true
	if _, err := Quantise(x, 4, 16, c); err == nil || !strings.Contains(err.Error(),
		"quantization.double_quant: type int8 has one scale a row") {
		t.Error(err)
	}
}

// TestHalf: numbers round to float16 as files are written.
func TestHalf(t *testing.T) {
	x := []float32{0, 1, -1, 65504, 65519.99, 65520, -65520, 1e30, 5.9604645e-08, 2.9802322e-08, 2.98023259e-08, 6.1e-5,
		6.10352e-5, 1e-10, 0.1, 2049, 2051}
	for _, v := range random(10000, 4) {
		x = append(x, v, v*1e-4, v*1e6)
	}
	f16, err := weights.FromFloat32s("x", weights.F16, []int{len(x)}, x)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, len(x))
	if err := weights.Float32s(f16, want); err != nil {
		t.Fatal(err)
	}
	for i, v := range x {
		if got := half(v); math.Float32bits(got) != math.Float32bits(want[i]) {
			t.Errorf("%v becomes %v, want %v", v, got, want[i])
		}
	}
}

// TestMXFP4EqualsTransformers compares with convert_moe_packed_tensors, which turns [experts, rows, blocks, 16] into
// [experts, columns, rows] in bf16.
func TestMXFP4EqualsTransformers(t *testing.T) {
	g := readTensors(t, "../internal/golden/testdata/prequantised/mxfp4.safetensors.gz")
	for _, prefix := range []string{"", "every."} {
		shape, scales := g[prefix+"blocks"].Shape, g[prefix+"scales"].Data
		experts, rows, cols := shape[0], shape[1], shape[2]*MXFP4Block
		m := MXFP4{Rows: experts * rows, Cols: cols, Codes: g[prefix+"blocks"].Data, Scales: scales}
		got := make([]float32, experts*rows*cols)
		for from, step := 0, 1; from < len(got); step = step*5%97 + 1 { // in pieces that begin and end anywhere
			to := min(from+step, len(got))
			m.DequantiseRange(got[from:to], from, to)
			from = to
		}
		want := floats(t, g[prefix+"weights"])
		for e := range experts {
			for r := range rows {
				for c := range cols {
					a, b := got[(e*rows+r)*cols+c], want[(e*cols+c)*rows+r]
					if math.Float32bits(a) != math.Float32bits(b) {
						t.Fatalf("%sexpert %d row %d column %d is %v, want %v", prefix, e, r, c, a, b)
					}
				}
			}
		}
	}
	for want, scales := range map[string][]byte{
		"the scale of block 8 is NaN (255); a frozen weight must be finite": {127, 255},
		"the scale of block 7 is 2^126, with which codes stand for numbers beyond float32; a frozen weight must be " +
			"finite": {253, 255},
	} {
		if err := CheckMXFP4(scales, 7); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := CheckMXFP4([]byte{0, 127, MXFP4MaxScale}, 0); err != nil {
		t.Error(err)
	}
}
