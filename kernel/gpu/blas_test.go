//go:build gpu && linux

package gpu

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

func bf16(f float32) uint16 {
	u := math.Float32bits(f)
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func f32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

func TestBLAS(t *testing.T) {
	d, s := device(t)
	b, err := OpenBLAS("")
	if err != nil {
		if os.Getenv("TRAINER_GPU") == "require" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Logf("cuBLASLt %s at %s", b.Version, b.Path)
	named := false // NCCL is another line, where it is installed
	for _, l := range Libraries("") {
		if l.Name == "cuBLASLt" {
			named = l.Path == b.Path && l.Problem == ""
		}
	}
	if !named {
		t.Errorf("Libraries: %+v", Libraries(""))
	}
	a, err := d.NewArena("test", 256<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Free()
	const M, N, K, ws = 200, 136, 264, 32 << 20
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []uint16 {
		v := make([]uint16, n)
		for i := range v {
			v[i] = bf16(r.Float32()*2 - 1)
		}
		return v
	}
	A, B, D := a.Base, a.Base.Add(1<<20), a.Base.Add(2<<20)
	as, bs := random(M*K), random(N*K)
	start := make([]float32, M*N)
	for i := range start {
		start[i] = r.Float32()
	}
	if err := errors.Join(Upload(A, as), Upload(B, bs)); err != nil {
		t.Fatal(err)
	}
	chosen, err := OpenAlgorithms(t.TempDir(), d.Name, b.Version)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []Gemm{
		{TransB: true, Out: F32, Alpha: 1}, {Out: F32, Alpha: 2}, {TransA: true, Out: F32, Alpha: 1, Beta: 0.5},
		{TransA: true, TransB: true, Out: F32, Alpha: 1},
		{TransB: true, Out: BF16, Alpha: 1}, {Out: BF16, Alpha: 1, Beta: 1},
	} {
		g.M, g.N, g.K = M, N, K
		at := func(v []uint16, trans bool, ld, i, k int) float64 {
			if trans {
				i, k = k, i
			}
			return float64(f32(v[i*ld+k]))
		}
		p := g.packed()
		want := make([]float64, M*N)
		for m := range M {
			for n := range N {
				var sum float64
				for k := range K {
					sum += at(as, g.TransA, p.LDA, m, k) * at(bs, g.TransB, p.LDB, k, n)
				}
				want[m*N+n] = float64(g.Alpha) * sum
			}
		}
		var first []float32
		for rep := range 2 {
			prod, err := b.Plan(g, ws, chosen)
			if err != nil {
				t.Fatal(err)
			}
			size, fill := 4, start
			raw := make([]uint16, M*N)
			if g.Out == BF16 {
				size = 2
				for i := range raw {
					raw[i] = bf16(start[i])
				}
				err = Upload(D, raw)
			} else {
				err = Upload(D, fill)
			}
			err = errors.Join(err, s.Fill(D.Add(int64(M*N*size)), 0xa5, 64), prod.Run(s, D, A, B, a.Base.Add(64<<20)),
				s.Synchronize())
			if err != nil {
				t.Fatal(err)
			}
			if n := testing.AllocsPerRun(10, func() {
				_ = prod.Run(s, D.Add(4<<20), A, B,
					a.Base.Add(64<<20))
			}); n != 0 {
				t.Errorf("a GEMM allocates %v times", n)
			}
			if prod.Run(s, D.Add(2), A, B, a.Base.Add(64<<20)) == nil {
				t.Error("a misaligned address was taken")
			}
			got, guard := make([]float32, M*N), make([]byte, 64)
			if g.Out == BF16 {
				err = Download(raw, D)
				for i := range got {
					got[i] = f32(raw[i])
				}
			} else {
				err = Download(got, D)
			}
			if err = errors.Join(err, Download(guard, D.Add(int64(M*N*size))), s.Synchronize()); err != nil {
				t.Fatal(err)
			}
			for _, v := range guard {
				if v != 0xa5 {
					t.Fatal("written beyond the output")
				}
			}
			worst := 0.0
			for i := range got {
				// The library may round the result to bf16 before it adds beta D, as two separate operations would;
				// twice that error.
				w, tol := want[i], 1e-4
				if g.Beta != 0 {
					if g.Out == BF16 {
						w += float64(g.Beta) * float64(f32(bf16(start[i])))
						tol += math.Abs(want[i]) / 256
					} else {
						w += float64(g.Beta) * float64(start[i])
					}
				}
				if g.Out == BF16 {
					tol += math.Abs(w) / 256
				}
				e := math.Abs(float64(got[i]) - w)
				worst = max(worst, e)
				if !(e <= tol) {
					t.Fatalf("%s: element %d is %v, want %v", g.Key(ws), i, got[i], w)
				}
			}
			if rep == 1 && !slices.Equal(first, got) {
				t.Errorf("%s: a repeat with the remembered algorithm differs", g.Key(ws))
			}
			first = got
			prod.Free()
			if rep == 0 {
				t.Logf("%s: largest error %.2g", g.Key(ws), worst)
			}
		}
	}
	if err := chosen.Save(); err != nil || len(chosen.Choice) != 6 {
		t.Errorf("choices: %d, %v", len(chosen.Choice), err)
	}
}
