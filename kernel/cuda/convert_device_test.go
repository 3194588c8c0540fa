//go:build gpu && linux

package cuda

import (
	"bytes"
	"math"
	"testing"

	"github.com/tierlora/tierlora/model/weights"
)

// TestConvert holds every conversion against package weights, to the bit: all numbers of a 16-bit type, many of
// fp32 with those between two of the narrow type, and sizes that are no multiple of eight.
func TestConvert(t *testing.T) {
	r := newHarness(t, 64<<20)
	types := map[string]weights.DType{"bf16": weights.BF16, "f16": weights.F16, "f32": weights.F32}
	stored := func(d weights.DType, v []float32) []byte {
		x, err := weights.FromFloat32s("x", d, []int{len(v)}, v)
		r.ok(err)
		return x.Data
	}
	values := func(d weights.DType) []float32 {
		var all []float32
		if d == weights.F32 {
			for _, narrow := range []weights.DType{weights.BF16, weights.F16} {
				even := make([]float32, 1<<16)
				r.ok(weights.Float32s(everyPattern(narrow), even))
				for i, x := range even[1:] { // half way between neighbours, and beside that
					mid := float32((float64(x) + float64(even[i])) / 2)
					all = append(all, x, mid, math.Nextafter32(mid, 2*mid), math.Nextafter32(mid, 0))
				}
			}
		} else {
			all = make([]float32, 1<<16)
			r.ok(weights.Float32s(everyPattern(d), all))
		}
		finite := all[:0]
		for _, x := range all {
			if x == x { // a NaN stays one, with whichever bits
				finite = append(finite, x)
			}
		}
		return finite
	}
	for from, f := range types {
		for to, d := range types {
			if from == to {
				continue
			}
			all := values(f)
			for _, n := range []int{1, 7, 8, 1001, len(all)} {
				x := all[len(all)-n:]
				out := r.repeat(func() [][]byte {
					y := r.out("y", int64(n*d.Size()))
					r.run(Convert(from, to, int64(n)), y, in(r, "x", stored(f, x)), int64(n))
					return [][]byte{get[byte](r, y, n*d.Size())}
				})
				if want := stored(d, x); !bytes.Equal(out[0], want) {
					at := 0
					for out[0][at] == want[at] {
						at++
					}
					t.Errorf("%s to %s, %d values: %v becomes % x, want % x", from, to, n, x[at/d.Size()],
						out[0][at/d.Size()*d.Size():][:d.Size()], want[at/d.Size()*d.Size():][:d.Size()])
				}
			}
		}
	}
}

func everyPattern(d weights.DType) weights.Tensor {
	b := make([]byte, 2<<16)
	for i := range 1 << 16 {
		b[2*i], b[2*i+1] = byte(i), byte(i>>8)
	}
	return weights.Tensor{Name: "all", DType: d, Shape: []int{1 << 16}, Data: b}
}
