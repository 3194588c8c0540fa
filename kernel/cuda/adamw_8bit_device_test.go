//go:build gpu && linux

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// dynamicMap returns a map of the device code: its values, and where their codes end.
func dynamicMap(t *testing.T, name string) (value, end [256]float32) {
	t.Helper()
	source, err := os.ReadFile("dynamic_map.cuh")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(source, []byte(name+"[256] = {"))
	list, _, _ := bytes.Cut(rest, []byte("}"))
	for i, n := range regexp.MustCompile(`[^\s,f]+`).FindAllString(string(list), -1) {
		x, err := strconv.ParseFloat(n, 32)
		if err != nil {
			t.Fatal(err)
		}
		value[i] = float32(x)
	}
	for i := range 255 {
		if end[i] = (value[i] + value[i+1]) * 0.5; i%2 == 1 {
			end[i] = math.Nextafter32(end[i], -1)
		}
	}
	end[255] = float32(math.Inf(1))
	return value, end
}

func codeOf(end *[256]float32, x float32) byte {
	c := 0
	for x > end[c] {
		c++
	}
	return byte(c)
}

// TestAdamW8Bit: four steps over tensors at any place and of any length have the bits of fp32 arithmetic that rounds
// every operation, codes and scales too; a gradient at each end of each code, and one that is zero, tiny or huge; the
// copy is the nearest bf16; a clip factor that is not a number changes nothing.
func TestAdamW8Bit(t *testing.T) {
	r := newHarness(t, 64<<20)
	signed, signedEnd := dynamicMap(t, "signed_map")
	unsigned, unsignedEnd := dynamicMap(t, "unsigned_map")
	const lr, eps, decay, clip = float32(1e-2), float32(1e-8), float32(0.1), float32(0.5)
	for _, c := range []struct {
		b1, b2 float32
		sizes  []int // of tensors in 8 bits, each beginning at a multiple of step
		small  []int
		step   int
	}{{0.9, 0.999, []int{1}, nil, 16}, {0, 0, []int{256 * 40, 999}, nil, 16},
		{0.9, 0.999, []int{300, 5000, 256}, []int{1, 257, 700}, 1},
		{0.9, 0.95, []int{1 << 18, 77777}, []int{4000}, 16}} {
		var table, smallTable []uint32
		at := 0
		cut := func(to *[]uint32, sizes []int) {
			for _, n := range sizes {
				at = (at + c.step - 1) / c.step * c.step
				for i := 0; i < n; i += 256 {
					*to = append(*to, uint32(at+i), uint32(min(256, n-i)))
				}
				at += n
			}
		}
		cut(&table, c.sizes)
		cut(&smallTable, c.small)
		q, n := len(table)/2, at
		table = append(table, smallTable...)
		rows := len(table) / 2
		q256, r256 := max(q, 1)*256, max(rows-q, 1)*256
		p, m, v := make([]float32, n), make([]float32, r256), make([]float32, r256)
		c1, c2, a1, a2 := make([]byte, q256), make([]byte, q256), make([]float32, q256/256), make([]float32, q256/256)
		out := r.repeat(func() [][]byte {
			grad := make([]float32, n)
			for i := range p {
				p[i] = float32(r.rnd.NormFloat64())
			}
			clear(m)
			clear(v)
			clear(c1)
			clear(c2)
			clear(a1)
			clear(a2)
			P, C, T := in(r, "p", p), r.out("copy", int64(2*n)), in(r, "blocks", table)
			C1, C2, A1, A2, M, V := in(r, "codes1", c1), in(r, "codes2", c2), in(r, "absmax1", a1),
				in(r, "absmax2", a2), in(r, "m", m), in(r, "v", v)
			step := func(g gpu.Ptr, t int32, factor float32) {
				r.run(AdamW8Bit(rows), P, C, g, C1, C2, A1, A2, M, V, T, in(r, "lr", []float32{lr}),
					in(r, "step", []int32{t}), in(r, "clip", []float32{factor}), gpu.Ptr(0),
					i32(q), i32(rows), c.b1, c.b2, eps, decay)
			}
			for s := 1; s <= 4; s++ {
				for i := range grad {
					grad[i] = float32(r.rnd.NormFloat64() * math.Pow(10, -float64(i%9)))
					switch {
					case c.b1 == 0 && i < 256*8:
						e := [...]float32{signedEnd[i/8%255], math.Nextafter32(signedEnd[i/8%255], 2),
							signed[i/8%255]}[i%3]
						if grad[i] = 2 * e; i%256 == 0 {
							grad[i] = 2
						}
					case i%4096 < 256 && s%2 == 1:
						grad[i] = 0
					case i%8192 == 5000:
						grad[i] = 1e30
					case i%8192 > 6000 && i%8192 < 6300:
						grad[i] = float32(math.Copysign(1e-30, r.rnd.NormFloat64()))
					}
				}
				step(in(r, "g", grad), int32(s), clip)
				correct1, root := float64(float32(1-math.Pow(float64(c.b1), float64(s)))),
					math.Sqrt(float64(float32(1-math.Pow(float64(c.b2), float64(s)))))
				size, e, keep := float32(-float64(lr)*root/correct1), float32(float64(eps)*root),
					float32(1-float64(lr)*float64(decay))
				to1, to2 := 1-c.b1, 1-c.b2
				for b := range rows {
					from, count := int(table[2*b]), int(table[2*b+1])
					var top1, top2 float32
					var M, V [256]float32
					for j := range count {
						if b < q {
							M[j], V[j] = signed[c1[256*b+j]]*a1[b], unsigned[c2[256*b+j]]*a2[b]
						} else {
							M[j], V[j] = m[256*(b-q)+j], v[256*(b-q)+j]
						}
						d := float32(grad[from+j] * clip)
						M[j] = float32(c.b1*M[j]) + float32(to1*d)
						V[j] = float32(c.b2*V[j]) + float32(float32(to2*d)*d)
						x := float32(float32(math.Sqrt(float64(V[j]))) + e)
						p[from+j] = float32(float32(p[from+j]+float32(size*float32(M[j]/x))) * keep)
						top1, top2 = max(top1, float32(math.Abs(float64(M[j])))), max(top2, V[j])
					}
					if b >= q {
						copy(m[256*(b-q):], M[:count])
						copy(v[256*(b-q):], V[:count])
						continue
					}
					inverse := func(top *float32) float32 {
						if *top < 0x1p-126 {
							*top = 0
							return 0
						}
						*top = min(*top, math.MaxFloat32)
						return 1 / *top
					}
					i1, i2 := inverse(&top1), inverse(&top2)
					a1[b], a2[b] = top1, top2
					for j := range count {
						code := codeOf(&signedEnd, float32(M[j]*i1))
						if code == 127 && math.Signbit(float64(M[j])) {
							code--
						}
						c1[256*b+j], c2[256*b+j] = code, codeOf(&unsignedEnd, float32(V[j]*i2))
					}
				}
			}
			step(in(r, "g", grad), 5, float32(math.NaN()))
			return [][]byte{get[byte](r, C1, q256), get[byte](r, C2, q256), get[byte](r, A1, q256/64),
				get[byte](r, A2, q256/64), get[byte](r, M, 4*r256), get[byte](r, V, 4*r256),
				get[byte](r, P, 4*n), get[byte](r, C, 2*n)}
		})
		name := fmt.Sprintf("tensors of %v and %v", c.sizes, c.small)
		for i, want := range [][]byte{c1, c2} {
			for j, w := range want {
				if out[i][j] != w {
					t.Fatalf("%s: moment %d, code %d is %d, want %d", name, i+1, j, out[i][j], w)
				}
			}
		}
		for i, want := range [][]float32{a1, a2, m, v} {
			for j, got := range f32Floats(out[2+i]) {
				if float32(got) != want[j] {
					t.Fatalf("%s: output %d, element %d is %v, want %v", name, 2+i, j, got, want[j])
				}
			}
		}
		got, narrow := f32Floats(out[6]), bfFloats(out[7])
		var kept, copied, wide []float64
		for b := range rows { // what lies between tensors is nobody's
			for j := range int(table[2*b+1]) {
				i := int(table[2*b]) + j
				kept, copied, wide = append(kept, got[i]), append(copied, narrow[i]), append(wide, float64(p[i]))
			}
		}
		for j, w := range wide {
			if kept[j] != w {
				t.Fatalf("%s: parameter %d is %v, want %v", name, j, kept[j], w)
			}
		}
		nearBF16(t, name+" copy", copied, wide)
	}
}
