package weights

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// TestF16 walks all 65536 patterns against the definition of the format.
func TestF16(t *testing.T) {
	data := make([]byte, 2<<16)
	for h := range 1 << 16 {
		binary.LittleEndian.PutUint16(data[2*h:], uint16(h))
	}
	got := make([]float32, 1<<16)
	if err := Float32s(Tensor{DType: F16, Shape: []int{1 << 16}, Data: data}, got); err != nil {
		t.Fatal(err)
	}
	for h := range 1 << 16 {
		exp, frac := h>>10&31, float64(h&1023)
		var want float64
		switch exp {
		case 0:
			want = math.Ldexp(frac, -24)
		case 31:
			want = math.Inf(1)
			if frac != 0 {
				want = math.NaN()
			}
		default:
			want = math.Ldexp(1024+frac, exp-25)
		}
		if h>>15 == 1 {
			want = -want
		}
		if math.IsNaN(want) {
			if got[h] == got[h] {
				t.Fatalf("%#04x = %g, expected NaN", h, got[h])
			}
		} else if math.Float32bits(got[h]) != math.Float32bits(float32(want)) {
			t.Fatalf("%#04x = %g, expected %g", h, got[h], want)
		}
		if back := float32ToF16(got[h]); int(back) != h && !(math.IsNaN(want) && back&0x7e00 == 0x7e00) {
			t.Fatalf("%#04x goes back to %#04x", h, back)
		}
	}
}

// TestRounding checks nearest-even at, below and above every midpoint.
func TestRounding(t *testing.T) {
	for h := range 0x7c00 {
		low, high := float64(f16ToFloat32(uint16(h))), float64(f16ToFloat32(uint16(h+1)))
		if h == 0x7bff {
			high = 65536 // where the next value would be; it rounds to infinity
		}
		mid := float32((low + high) / 2)
		even := uint16(h + h&1)
		for _, c := range []struct {
			x    float32
			want uint16
		}{{math.Nextafter32(mid, -1), uint16(h)}, {mid, even}, {math.Nextafter32(mid, 1e6), uint16(h + 1)}} {
			if got := float32ToF16(c.x); got != c.want {
				t.Fatalf("f16 of %g = %#04x, expected %#04x", c.x, got, c.want)
			}
			if got := float32ToF16(-c.x); got != c.want|0x8000 {
				t.Fatalf("f16 of %g = %#04x, expected %#04x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for h := range 0x7f80 {
		mid := uint32(h)<<16 | 0x8000
		for _, c := range []struct {
			bits uint32
			want uint16
		}{{mid - 1, uint16(h)}, {mid, uint16(h + h&1)}, {mid + 1, uint16(h + 1)}} {
			if got := float32ToBF16(math.Float32frombits(c.bits)); got != c.want {
				t.Fatalf("bf16 of %#x = %#04x, expected %#04x", c.bits, got, c.want)
			}
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fffffff, 0xff800001} {
		x := math.Float32frombits(bits)
		if h := float32ToBF16(x); h&0x7fff <= 0x7f80 {
			t.Errorf("bf16 of NaN %#x = %#04x", bits, h)
		}
		if h := float32ToF16(x); h&0x7fff <= 0x7c00 {
			t.Errorf("f16 of NaN %#x = %#04x", bits, h)
		}
	}
}

func TestFloat32Range(t *testing.T) {
	const n = 37
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i) - 11.5
	}
	for _, d := range []DType{F64, F32, F16, BF16} {
		tensor, err := FromFloat32s("x", d, []int{n}, values)
		if err != nil {
			t.Fatal(err)
		}
		wide := make([]float64, n)
		if err := Float64s(tensor, wide); err != nil {
			t.Fatal(err)
		}
		for from := 0; from <= n; from++ {
			for to := from; to <= n; to++ {
				dst := make([]float32, n+1)
				dst[to-from] = 99
				if err := Float32Range(tensor, from, to, dst); err != nil {
					t.Fatal(err)
				}
				for i := from; i < to; i++ {
					if dst[i-from] != values[i] || wide[i] != float64(values[i]) {
						t.Fatalf("%s [%d,%d): element %d = %g, expected %g", d, from, to, i, dst[i-from], values[i])
					}
				}
				if dst[to-from] != 99 {
					t.Fatalf("%s [%d,%d) wrote past its end", d, from, to)
				}
			}
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	good := Tensor{Name: "x", DType: F32, Shape: []int{3}, Data: make([]byte, 12)}
	short := Tensor{Name: "x", DType: F32, Shape: []int{3}, Data: make([]byte, 8)}
	whole := Tensor{Name: "x", DType: I32, Shape: []int{1}, Data: make([]byte, 4)}
	u64 := Tensor{Name: "x", DType: U64, Shape: []int{1}, Data: make([]byte, 8)}
	dst := make([]float32, 3)
	for _, c := range []struct {
		err  error
		want string
	}{
		{Float32s(good, make([]float32, 2)), `convert "x": 3 elements into 2`},
		{Float32Range(good, 2, 4, dst), `convert "x": elements 2 to 4 of 3 into 3`},
		{Float32Range(good, -1, 1, dst), `convert "x": elements -1 to 1 of 3 into 3`},
		{Float32Range(good, 2, 1, dst), `convert "x": elements 2 to 1 of 3 into 3`},
		{Float32Range(good, 0, 3, dst[:2]), `convert "x": elements 0 to 3 of 3 into 2`},
		{Float32s(short, dst), `convert "x": 8 bytes of data for F32 of shape [3]`},
		{Float32s(whole, dst[:1]), `convert "x": I32 is not a floating-point type that converts to float32`},
		{Int64s(good, make([]int64, 3)), `convert "x": F32 is not an integer type that fits int64`},
		{Int64s(u64, make([]int64, 1)), `convert "x": U64 is not an integer type that fits int64`},
		{Float64s(good, make([]float64, 1)), `convert "x": 3 elements into 1`},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, expected %q", c.err, c.want)
		}
	}
	if _, err := FromFloat32s("x", I8, []int{1}, dst[:1]); err == nil || !strings.Contains(err.Error(),
		"cannot be stored as I8") {
		t.Errorf("FromFloat32s to I8: %v", err)
	}
	if _, err := FromFloat32s("x", F32, []int{2}, dst); err == nil || !strings.Contains(err.Error(),
		"3 values for shape [2]") {
		t.Errorf("FromFloat32s of a wrong shape: %v", err)
	}
}

func BenchmarkFloat32s(b *testing.B) {
	const n = 1 << 20
	for _, d := range []DType{F32, BF16, F16} {
		b.Run(d.String(), func(b *testing.B) {
			t, err := FromFloat32s("x", d, []int{n}, make([]float32, n))
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]float32, n)
			b.SetBytes(int64(len(t.Data)))
			for b.Loop() {
				if err := Float32s(t, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestRaw(t *testing.T) {
	x, err := FromFloat32s("x", BF16, []int{2, 3}, []float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if err := Raw(x, 3, got); err != nil || !bytes.Equal(got, x.Data[6:10]) {
		t.Errorf("elements 3 and 4: % x, want % x; %v", got, x.Data[6:10], err)
	}
	for _, c := range []struct {
		from, bytes int
		want        string
	}{
		{0, 3, `read "x": 3 bytes are no whole number of BF16`},
		{4, 6, `convert "x": elements 4 to 7 of 6 into 3`},
		{-1, 2, `convert "x": elements -1 to 0 of 6 into 1`},
	} {
		if err := Raw(x, c.from, make([]byte, c.bytes)); err == nil || err.Error() != c.want {
			t.Errorf("%d bytes from %d: %v, want %s", c.bytes, c.from, err, c.want)
		}
	}
}
